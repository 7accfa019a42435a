// What the configs of several jobs have in common, and where they differ.

import { h } from "../dom.js";
import { value as shown } from "../format.js";
import { titleOf } from "../jobs/words.js";

/** The arguments that are not the same in all jobs: lists of `{name, values}`, one value a job. */
export function differences(jobs, { resolved }) {
  const configs = jobs.map((job) => (resolved ? job.resolved_config : { task: job.task, ...job.config }));
  const names = [...new Set(configs.flatMap((config) => Object.keys(config)))].sort();
  return names
    .map((name) => ({ name, values: configs.map((config) => config[name]) }))
    .filter(({ values }) => new Set(values.map((each) => JSON.stringify(each ?? null))).size > 1);
}

/** A table of the differences, a column for each job. */
export function differenceTable(jobs, options) {
  const rows = differences(jobs, options);
  if (!rows.length) return h("p", { class: "empty" }, "Their arguments are the same.");
  return h("table", { class: "differences" },
    h("caption", { class: "unseen" }, "Arguments that differ"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Argument"), jobs.map((job) => h("th", { scope: "col" }, titleOf(job))))),
    h("tbody", {}, rows.map(({ name, values }) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)),
      values.map((value) => h("td", { class: "mono break" }, value === undefined || value === null
        ? h("span", { class: "muted" }, "not set") : shown(value)))))));
}
