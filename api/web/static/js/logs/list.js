// A list of very many lines of one height, of which only those that are seen are elements.

import { fill, h } from "../dom.js";

const LINE_HEIGHT = 20;
const SPARE_LINES = 10;

export class LineList {
  #lines = [];
  #frame = 0;
  #top = 0;
  #drawn = "";

  /**
   * @param {object} options
   * @param {string} options.label what the list is called
   * @param {(line: object) => Element} options.draw the element of a line
   * @param {(atEnd: boolean) => void} options.onScroll
   */
  constructor({ label, draw, onScroll }) {
    this.draw = draw;
    this.rows = h("div", { class: "lines" });
    this.space = h("div", { class: "line-space" }, this.rows);
    this.element = h("div", { class: "line-list", role: "log", "aria-live": "off", "aria-label": label, tabindex: 0 }, this.space);
    this.element.addEventListener("scroll", () => {
      if (this.element.scrollTop !== this.#top) onScroll(this.atEnd);
      this.#top = this.element.scrollTop;
      this.redraw();
    });
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.element);
  }

  get atEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    return scrollHeight - scrollTop - clientHeight < LINE_HEIGHT;
  }

  /** Show these lines; the list keeps the array and may be told of additions by the same call. */
  show(lines, toEnd) {
    this.#lines = lines;
    this.#drawn = "";
    this.space.style.height = `${lines.length * LINE_HEIGHT}px`;
    if (toEnd) this.toEnd();
    this.redraw();
  }

  /** Keep what is seen in its place when so many lines come before it. */
  shift(count) {
    this.element.scrollTop = this.#top = this.element.scrollTop + count * LINE_HEIGHT;
  }

  toEnd() {
    this.element.scrollTop = this.element.scrollHeight;
    this.#top = this.element.scrollTop;
  }

  destroy() {
    this.observer.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  redraw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / LINE_HEIGHT) - SPARE_LINES);
    const count = Math.ceil(this.element.clientHeight / LINE_HEIGHT) + 2 * SPARE_LINES;
    const last = Math.min(this.#lines.length, first + count);
    const drawn = `${first}-${last}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.rows.style.transform = `translateY(${first * LINE_HEIGHT}px)`;
    fill(this.rows, this.#lines.slice(first, last).map(this.draw));
  }
}
