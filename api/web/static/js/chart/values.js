// The numbers of a chart as a table, for those who do not see it.

import { h } from "../dom.js";
import { number } from "../format.js";
import { indexOf } from "./scale.js";

const ROWS = 20;

/** A table of the values of each series at evenly spread steps of a stretch. */
export function valueTable(title, series, [low, high], format) {
  const steps = spread(series, low, high);
  return h("table", {},
    h("caption", { class: "unseen" }, title),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Step"), series.map(({ name }) => h("th", { scope: "col", class: "number" }, name)))),
    h("tbody", {}, steps.map((step) => h("tr", {}, h("th", { scope: "row" }, number(step)),
      series.map(({ xs, ys }) => h("td", { class: "number" }, valueAt(xs, ys, step, format)))))));
}

function spread(series, low, high) {
  const longest = series.reduce((best, one) => (one.xs.length > best.xs.length ? one : best), { xs: [] });
  const seen = longest.xs.slice(indexOf(longest.xs, low), indexOf(longest.xs, high + 1e-9));
  const step = Math.max(1, (seen.length - 1) / (ROWS - 1));
  const found = new Set();
  for (let place = 0; place < seen.length; place += step) found.add(seen[Math.round(place)]);
  return [...found];
}

/** The value at a step, or the last one before it. */
function valueAt(xs, ys, step, format) {
  const index = indexOf(xs, step + 1e-9) - 1;
  return index < 0 ? "–" : format(ys[index]);
}
