// Several jobs beside each other: their curves in the same charts, and how their arguments differ.

import { get, path } from "../api.js";
import { colorOf, curvePanel } from "../compare/curves.js";
import { differenceTable } from "../compare/differences.js";
import { fill, h, setText } from "../dom.js";
import { duration, between, number } from "../format.js";
import { isOver, titleOf } from "../jobs/words.js";
import { repeat } from "../live.js";
import { problemBox } from "../problems.js";
import { link } from "../router.js";

const MOST = 8;
const EVERY_MS = 2000;

export async function show(root, { query, signal }) {
  const ids = [...new Set((query.get("ids") ?? "").split(",").filter(Boolean))].slice(0, MOST);
  if (ids.length < 2) {
    fill(root, h("h1", {}, "Compare jobs"), h("p", { class: "empty" }, "Choose two to eight jobs in the ", h("a", { href: "#/jobs" }, "list of jobs"), "."));
    return;
  }
  fill(root, h("h1", {}, "Compare jobs"), h("p", { class: "muted" }, "Loading …"));
  const jobs = await Promise.all(ids.map((id) => get(path`/jobs/${id}`, {}, { signal })));
  const curves = curvePanel(jobs, signal);
  const problem = h("div", { role: "alert" });
  const above = overview(jobs);
  const resolved = h("input", { type: "checkbox", onchange: drawDifferences });
  const table = h("div", { class: "card flush" });
  fill(root,
    h("h1", {}, "Compare jobs"),
    problem, h("div", { class: "card flush" }, above.element), curves.element,
    h("div", { class: "head" }, h("h2", {}, "Arguments that differ"), h("label", { class: "check" }, resolved, "As run, with every default")),
    table);
  drawDifferences();
  repeat(load, { signal, interval: () => (jobs.some(({ status }) => !isOver(status)) ? EVERY_MS : null), onError: (error) => fill(problem, problemBox(error)) });

  async function load(stop) {
    await Promise.all(jobs.map(async (job) => {
      if (!isOver(job.status)) Object.assign(job, await get(path`/jobs/${job.id}`, {}, { signal: stop }));
    }));
    above.update();
    await curves.load(stop);
    fill(problem);
  }

  function drawDifferences() {
    fill(table, differenceTable(jobs, { resolved: resolved.checked }));
  }
}

/** A table of the jobs: `{element, update}`; what has not changed is not touched. */
function overview(jobs) {
  const ids = jobs.map(({ id }) => id);
  const rows = jobs.map((job, place) => {
    const swatch = h("span", { class: "swatch" });
    swatch.style.background = `var(${colorOf(place)})`;
    const status = h("span", { class: "status" });
    const [step, loss, ran] = [0, 1, 2].map(() => h("td", { class: "number" }));
    const others = ids.filter((id) => id !== job.id).join(",");
    const element = h("tr", {},
      h("th", { scope: "row" }, swatch, h("a", { href: link(`/jobs/${job.id}`) }, titleOf(job))), h("td", {}, status), step, loss, ran,
      h("td", { class: "actions" }, h("a", { href: link("/compare", { ids: others }), "aria-label": `Leave out ${titleOf(job)}` }, "Leave out")));
    return { element, update() {
      status.dataset.status = job.status;
      setText(status, job.status);
      setText(step, number(job.progress.step));
      setText(loss, number(job.progress.loss));
      setText(ran, duration(between(job.started_at, job.finished_at)));
    } };
  });
  const titles = ["Job", "Status", "Step", "Loss", "Ran"];
  const element = h("table", { class: "compared" },
    h("caption", { class: "unseen" }, "The jobs"),
    h("thead", {}, h("tr", {}, titles.map((title, place) => h("th", { scope: "col", class: place > 1 ? "number" : null }, title)),
      h("th", { scope: "col" }, h("span", { class: "unseen" }, "Actions")))),
    h("tbody", {}, rows.map((row) => row.element)));
  const update = () => rows.forEach((row) => row.update());
  update();
  return { element, update };
}
