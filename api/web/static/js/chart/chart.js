// A chart of numbers by step: lines on a canvas, the values at the cursor beside them, and all of it in words.

import { fill, h, setText } from "../dom.js";
import { number } from "../format.js";
import { onZoomGestures } from "./gestures.js";
import { paint, scales, wholeRange } from "./draw.js";
import { indexOf, nearest } from "./scale.js";
import { smooth } from "./thin.js";
import { valueTable } from "./values.js";

const STEPS_OF_KEYS = 40;

export class Chart {
  #canvas = h("canvas", { tabindex: 0, role: "img" });
  #readout = h("ul", { class: "readout" });
  #spoken = h("span", { class: "unseen", "aria-live": "polite" });
  #probe = h("span", { hidden: true });
  #series = [];
  #scales = null;
  #frame = 0;
  #cursor = null;
  #chosen = null;
  #range = null;
  #log = false;
  #weight = 0;
  #ends = [];

  /**
   * @param {object} options
   * @param {string} options.title
   * @param {(value: number) => string} [options.format] of the axis and the values
   * @param {(range: [number, number]|null) => void} options.onRange a stretch of steps was chosen; null: all
   * @param {(x: number|null) => void} options.onCursor
   */
  constructor({ title, format = number, onRange, onCursor }) {
    this.title = title;
    this.format = format;
    this.onRange = onRange;
    this.onCursor = onCursor;
    const table = h("details", { class: "values" }, h("summary", {}, "As a table"), h("div"));
    table.addEventListener("toggle", () => {
      if (table.open) fill(table.lastElementChild, valueTable(title, this.#series, this.#visibleRange(), this.format));
    });
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("h3", {}, title), this.#readout), this.#canvas, this.#spoken, this.#probe, table);
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.#canvas);
    const recolor = () => this.redraw();
    document.addEventListener("regatta:theme", recolor);
    this.#ends.push(() => observer.disconnect(), () => document.removeEventListener("regatta:theme", recolor));
    onZoomGestures(this.#canvas, {
      back: (pixel) => this.#scales?.x.back(pixel),
      onCursor: (x) => this.onCursor(x),
      onChoosing: (pixels) => {
        this.#chosen = pixels;
        this.redraw();
      },
      onRange: (range) => this.onRange(range),
    });
    this.#canvas.addEventListener("keydown", (event) => this.#onKey(event));
  }

  /**
   * @param {Array<{name: string, color: string, xs: number[], ys: number[], dots?: boolean, dash?: number[]}>} series
   *   `color` is the name of a CSS variable; `xs` grow; NaN in `ys` is a gap. The lists may be added to: call
   *   `changed` then.
   */
  setSeries(series) {
    this.#series = series.map((one) => ({ ...one, variable: one.color }));
    this.changed();
  }

  /** Numbers were added to the lists. */
  changed() {
    for (const one of this.#series) {
      one.faint = this.#weight > 0 && !one.dots;
      one.shown = one.faint ? smooth(one.ys, this.#weight) : one.ys;
    }
    this.redraw();
  }

  /** Show only these steps; null: all. */
  setRange(range) {
    this.#range = range;
    this.redraw();
  }

  setLog(log) {
    this.#log = log;
    this.redraw();
  }

  /** How much of a point is the past, from 0 to below 1; what is smoothed stays visible, faintly. */
  setSmoothing(weight) {
    this.#weight = weight;
    this.changed();
  }

  /** Mark a step and tell the values there; null: none. */
  setCursor(x) {
    this.#cursor = x;
    this.redraw();
  }

  destroy() {
    cancelAnimationFrame(this.#frame);
    for (const end of this.#ends) end();
  }

  /** Paint in the next frame, however often it is asked for before. */
  redraw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!width || !height) return;
    const ratio = devicePixelRatio;
    if (this.#canvas.width !== Math.round(width * ratio) || this.#canvas.height !== Math.round(height * ratio)) {
      this.#canvas.width = Math.round(width * ratio);
      this.#canvas.height = Math.round(height * ratio);
    }
    const context = this.#canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const one of this.#series) {
      one.color = this.#color(one.variable);
      one.at = this.#cursor === null ? -1 : nearest(one.xs, this.#cursor);
    }
    this.#scales = scales(this.#series, { width, height, range: this.#range, log: this.#log });
    if (this.#scales) {
      const colors = { grid: this.#color("--line"), label: this.#color("--muted"), chosen: this.#color("--chosen") };
      const { format } = this;
      paint(context, this.#series, this.#scales, { width, height, colors, format, cursor: this.#cursor, chosen: this.#chosen });
    } else {
      context.clearRect(0, 0, width, height);
    }
    this.#tell();
  }

  #color(variable) {
    this.#probe.style.color = `var(${variable})`;
    return getComputedStyle(this.#probe).color;
  }

  #tell() {
    const [, high] = this.#visibleRange();
    const items = this.#series.filter(({ xs }) => xs.length).map((one) => {
      const at = one.at >= 0 ? one.at : Math.max(0, indexOf(one.xs, high + 1e-9) - 1);
      return { ...one, step: one.xs[at], value: one.shown[at] };
    });
    if (this.#readout.children.length !== items.length) {
      fill(this.#readout, items.map(() => h("li", {}, h("i", { class: "swatch" }), h("span"), " ", h("b", { class: "number" }), " ", h("span", { class: "hint number" }))));
    }
    items.forEach(({ name, variable, step, value }, index) => {
      const [swatch, label, text, where] = this.#readout.children[index].children;
      swatch.style.background = `var(${variable})`;
      setText(label, name);
      setText(text, this.format(value));
      setText(where, `at ${number(step)}`);
    });
    this.#canvas.setAttribute("aria-label", this.#words());
  }

  #words() {
    const [low, high] = this.#visibleRange();
    const parts = this.#series.map(({ name, xs, ys }) => {
      const [from, to] = [indexOf(xs, low), indexOf(xs, high + 1e-9)];
      if (to <= from) return `${name}: no numbers`;
      let [least, most] = [Infinity, -Infinity];
      for (let index = from; index < to; index += 1) {
        if (ys[index] < least) least = ys[index];
        if (ys[index] > most) most = ys[index];
      }
      const [first, last] = [this.format(ys[from]), this.format(ys[to - 1])];
      return `${name}: ${first} at step ${xs[from]}, ${last} at step ${xs[to - 1]}, lowest ${this.format(least)}, highest ${this.format(most)}`;
    });
    return `${this.title}. ${parts.join(". ")}. Left and right move the cursor, plus and minus zoom, 0 shows all.`;
  }

  #visibleRange() {
    return this.#range ?? wholeRange(this.#series);
  }

  #onKey(event) {
    const [low, high] = this.#visibleRange();
    if (!(low <= high)) return;
    const step = (high - low) / STEPS_OF_KEYS;
    const middle = this.#cursor ?? high;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key in moves) {
      const wanted = Math.min(high, Math.max(low, middle + moves[event.key] * Math.max(step, 1)));
      this.onCursor(wanted);
      this.#cursor = wanted;
      this.#speak();
    } else if (event.key === "+" || event.key === "-") {
      const half = ((high - low) / 2) * (event.key === "+" ? 0.5 : 2);
      this.onRange([middle - half, middle + half]);
    } else if (event.key === "0" || event.key === "Escape") {
      this.onCursor(null);
      this.onRange(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  #speak() {
    const parts = this.#series.filter(({ xs }) => xs.length).map(({ name, xs, shown }) => {
      const at = nearest(xs, this.#cursor);
      return `${name} ${this.format(shown[at])} at step ${xs[at]}`;
    });
    setText(this.#spoken, parts.join(", "));
  }
}
