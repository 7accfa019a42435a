// The rows of the list of jobs. A row stays the same element while its job changes.

import { fill, h, reconcile, setOrRemove, setText } from "../dom.js";
import { ago, count, moment, number } from "../format.js";
import { link } from "../router.js";
import { progressWords, shareOf, titleOf, whyWords } from "./words.js";

const COLUMNS = [
  ["", "choose"], ["Job", "job"], ["Status", "state"], ["Progress", "far"], ["Loss", "number loss"],
  ["Tokens/s", "number speed"], ["Task", "task"], ["Labels", "labels"], ["Created", "number created"],
];

/**
 * @param {object} on
 * @param {(id: string, chosen: boolean) => void} on.choose
 * @param {(label: string) => void} on.label
 * @param {(id: string) => boolean} on.isChosen
 */
export function jobTable(on) {
  const body = h("tbody");
  const table = h("table", { class: "jobs" },
    h("caption", { class: "unseen" }, "Jobs, the newest first"),
    h("thead", {}, h("tr", {}, COLUMNS.map(([title, name]) =>
      h("th", { scope: "col", class: name }, title || h("span", { class: "unseen" }, "Choose"))))),
    body);
  return {
    table,
    show: (jobs) => reconcile(body, jobs, (job) => job.id, (job) => createRow(job, on), (row, job) => updateRow(row, job, on)),
  };
}

const parts = new WeakMap();

function createRow(job, on) {
  const cell = {
    choose: h("input", { type: "checkbox", onchange: (event) => on.choose(job.id, event.target.checked) }),
    name: h("a", { href: link(`/jobs/${encodeURIComponent(job.id)}`) }),
    status: h("span", { class: "status" }),
    why: h("span", { class: "why hint" }),
    bar: h("progress", { class: "progress", max: 1 }),
    far: h("span", { class: "hint number" }),
    loss: h("td", { class: "number loss" }),
    speed: h("td", { class: "number speed" }),
    labels: h("div", { class: "tags" }),
    created: h("time"),
    labelText: "",
  };
  const row = h("tr", {},
    h("td", { class: "choose" }, cell.choose),
    h("th", { scope: "row", class: "job" }, cell.name),
    h("td", { class: "state" }, cell.status, cell.why),
    h("td", { class: "far" }, cell.bar, cell.far),
    cell.loss, cell.speed,
    h("td", { class: "task" }, job.task),
    h("td", { class: "labels" }, cell.labels),
    h("td", { class: "number created" }, cell.created));
  parts.set(row, cell);
  return row;
}

function updateRow(row, job, on) {
  const cell = parts.get(row);
  const title = titleOf(job);
  setText(cell.name, title);
  setOrRemove(cell.choose, "aria-label", `Choose ${title}`);
  cell.choose.checked = on.isChosen(job.id);
  setText(cell.status, job.status);
  setOrRemove(cell.status, "data-status", job.status);
  setText(cell.why, whyWords(job));
  setOrRemove(cell.why, "title", job.message);
  showProgress(cell, job);
  setText(cell.loss, number(job.progress.loss));
  setText(cell.speed, count(job.status === "running" ? job.progress.tokens_per_second : null));
  showLabels(cell, job.labels, on);
  setText(cell.created, ago(job.created_at));
  setOrRemove(cell.created, "datetime", job.created_at);
  setOrRemove(cell.created, "title", moment(job.created_at));
}

function showProgress(cell, job) {
  const share = shareOf(job);
  cell.bar.hidden = share === null || job.status === "succeeded";
  if (share !== null) cell.bar.value = share;
  setOrRemove(cell.bar, "aria-label", `Progress of ${titleOf(job)}`);
  setText(cell.far, progressWords(job));
}

function showLabels(cell, labels, on) {
  const texts = Object.entries(labels).map(([key, value]) => `${key}:${value}`);
  const text = texts.join("\n");
  if (text === cell.labelText) return;
  cell.labelText = text;
  fill(cell.labels, texts.map((each) => h("button", {
    type: "button", class: "tag", title: `Only jobs with ${each}`, onclick: () => on.label(each),
  }, each)));
}
