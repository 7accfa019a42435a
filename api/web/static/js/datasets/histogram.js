// How many records have which length: a table whose rows are bars.

import { h } from "../dom.js";
import { count, number, percent } from "../format.js";

/**
 * @param {object} lengths `histogram`, `mean`, `max`
 * @param {string} unit what is counted
 * @param {number} [limit] lengths above it are marked
 */
export function histogram({ histogram: bins, mean, max }, unit, limit = Infinity) {
  const most = Math.max(1, ...bins.map(({ examples }) => examples));
  const whole = bins.reduce((sum, { examples }) => sum + examples, 0) || 1;
  return h("table", { class: "histogram" },
    h("caption", { class: "hint" }, `${unit} of a record: ${number(mean, 3)} on average, at most ${count(max)}`),
    h("thead", { class: "unseen" }, h("tr", {}, [unit, "Share", "Records"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, bins.map(({ up_to: top, examples }, index) => {
      const bottom = index ? bins[index - 1].up_to + 1 : 0;
      const bar = h("span", { class: bottom > limit ? "bar-fill over" : "bar-fill" });
      bar.style.width = `${(100 * examples) / most}%`;
      const range = top === null ? `${count(bottom)} and more` : `${count(bottom)} – ${count(top)}`;
      return h("tr", {}, h("th", { scope: "row", class: "number" }, range),
        h("td", { class: "bar-cell", title: percent(examples / whole) }, bar, h("span", { class: "unseen" }, percent(examples / whole))),
        h("td", { class: "number" }, count(examples)));
    })));
}
