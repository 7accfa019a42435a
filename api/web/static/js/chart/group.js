// Charts that share a stretch of steps, a cursor, a scale and a smoothing, and the tools that set them.

import { h } from "../dom.js";
import { Chart } from "./chart.js";

const SMOOTHINGS = [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99];

export class ChartGroup {
  #charts = new Map();
  #range = null;
  #log = false;
  #weight = 0;

  /** @param {(range: [number, number]|null) => void} [onRange] also told of every stretch that is chosen */
  constructor(onRange = () => {}) {
    this.onRange = onRange;
    this.reset = h("button", { type: "button", disabled: true, onclick: () => this.setRange(null) }, "Show all steps");
    const log = h("input", { type: "checkbox", onchange: (event) => this.#each((chart) => chart.setLog((this.#log = event.target.checked))) });
    const amount = h("output", { class: "number" }, "off");
    const smoothing = h("input", {
      type: "range", min: 0, max: SMOOTHINGS.length - 1, step: 1, value: 0,
      oninput: (event) => {
        this.#weight = SMOOTHINGS[Number(event.target.value)];
        amount.textContent = this.#weight || "off";
        this.#each((chart) => chart.setSmoothing(this.#weight));
      },
    });
    this.tools = h("div", { class: "chart-tools" },
      h("label", {}, log, "Log scale"), h("label", {}, "Smoothing", smoothing, amount), this.reset,
      h("span", { class: "hint" }, "Drag to zoom, double-click to show all"));
    this.element = h("div", { class: "charts" });
  }

  /** The chart of this title; made when there is none yet. `format` is only looked at then. */
  chart(title, format) {
    let chart = this.#charts.get(title);
    if (!chart) {
      chart = new Chart({ title, format, onRange: (range) => this.setRange(range), onCursor: (x) => this.#each((each) => each.setCursor(x)) });
      chart.setLog(this.#log);
      chart.setSmoothing(this.#weight);
      chart.setRange(this.#range);
      this.#charts.set(title, chart);
      this.element.append(chart.element);
    }
    return chart;
  }

  /** Show only these steps; null: all. */
  setRange(range) {
    this.#range = range;
    this.reset.disabled = range === null;
    this.#each((chart) => chart.setRange(range));
    this.onRange(range);
  }

  /** Numbers were added to the lists of some series. */
  changed() {
    this.#each((chart) => chart.changed());
  }

  destroy() {
    this.#each((chart) => chart.destroy());
  }

  #each(call) {
    for (const chart of this.#charts.values()) call(chart);
  }
}
