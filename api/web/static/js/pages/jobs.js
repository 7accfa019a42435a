// The list of jobs: one page of it, kept up to date.

import { get } from "../api.js";
import { announce } from "../announce.js";
import { fill, h, setText } from "../dom.js";
import { filterForm } from "../jobs/filters.js";
import { jobTable } from "../jobs/table.js";
import { isOver, titleOf } from "../jobs/words.js";
import { repeat } from "../live.js";
import { problemBox } from "../problems.js";
import { go, keepInAddress } from "../router.js";

const PAGE = 50;
const BUSY_MS = 2000;
const QUIET_MS = 5000;
const MOST_COMPARED = 8;

export function show(root, { query, signal }) {
  const state = { cursors: [null], next: null, jobs: [], chosen: new Set(), seen: new Map() };
  const problem = h("div", { role: "alert" });
  const where = h("span", { class: "muted number" });
  const previous = h("button", { type: "button", onclick: () => turn(-1) }, "Newer");
  const next = h("button", { type: "button", onclick: () => turn(1) }, "Older");
  const compare = h("button", { type: "button", onclick: () => go("/compare", { ids: [...state.chosen].join(",") }) }, "Compare");
  const empty = h("p", { class: "empty", hidden: true });
  const filter = filterForm(query, (filters) => {
    keepFilters(filters);
    toStart();
  });
  const { table, show: showRows } = jobTable({
    choose: (id, chosen) => {
      if (chosen) state.chosen.add(id);
      else state.chosen.delete(id);
      showChosen();
    },
    isChosen: (id) => state.chosen.has(id),
    label: filter.addLabel,
  });

  fill(root,
    h("div", { class: "head" }, h("h1", {}, "Jobs"), compare, h("a", { class: "button primary", href: "#/new" }, "New job")),
    filter.form, problem,
    h("div", { class: "card flush" }, table, empty),
    h("nav", { class: "pager", "aria-label": "Pages of the list" }, where, previous, next));
  showChosen();

  const list = repeat(load, { signal, interval: pause, onError: (error) => fill(problem, problemBox(error)) });

  async function load(stop) {
    const cursor = state.cursors.at(-1);
    const page = await get("/jobs", { ...filter.filters(), view: "summary", limit: PAGE, cursor }, { signal: stop });
    fill(problem);
    state.jobs = page.items;
    state.next = page.next_cursor;
    tellChanges();
    showRows(state.jobs);
    showPlace();
  }

  function pause() {
    return state.jobs.some((job) => !isOver(job.status)) ? BUSY_MS : QUIET_MS;
  }

  function turn(step) {
    if (step > 0) state.cursors.push(state.next);
    else state.cursors.pop();
    list.now();
    scrollTo(0, 0);
  }

  function toStart() {
    state.cursors = [null];
    list.now();
  }

  function showPlace() {
    const before = (state.cursors.length - 1) * PAGE;
    const found = state.jobs.length;
    setText(where, found ? `${before + 1}–${before + found}${state.next ? "" : ` of ${before + found}`}` : "");
    previous.disabled = state.cursors.length === 1;
    next.disabled = state.next === null;
    empty.hidden = found > 0;
    table.hidden = found === 0;
    const { status, task, text, label } = filter.filters();
    const narrowed = status || task || text || label.length;
    setText(empty, narrowed ? "No job matches these filters." : "There are no jobs yet. “New job” makes the first one.");
  }

  function showChosen() {
    const count = state.chosen.size;
    setText(compare, count ? `Compare ${count}` : "Compare");
    compare.disabled = count < 2 || count > MOST_COMPARED;
    compare.title = `Choose 2 to ${MOST_COMPARED} jobs`;
  }

  function tellChanges() {
    const news = [];
    for (const job of state.jobs) {
      const before = state.seen.get(job.id);
      if (before && before !== job.status) news.push(`${titleOf(job)}: ${job.status}`);
      state.seen.set(job.id, job.status);
    }
    if (news.length) announce(news.join(". "));
  }
}

function keepFilters({ status, task, text, label }) {
  const words = new URLSearchParams(Object.entries({ status, task, text }).filter(([, value]) => value));
  for (const each of label) words.append("label", each);
  keepInAddress(words);
}
