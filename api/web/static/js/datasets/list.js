// All data sets, and the form that adds one.

import { address, get, path, remove } from "../api.js";
import { openDialog } from "../dialog.js";
import { fill, h, reconcile } from "../dom.js";
import { ago, bytes, moment } from "../format.js";
import { isAbort, problemBox } from "../problems.js";
import { summary, uploadForm } from "./upload.js";

const PAGE = 50;

export function showList(root, { signal }) {
  const state = { items: [], next: null };
  const rows = h("tbody", {});
  const problem = h("div", { role: "alert" });
  const empty = h("p", { class: "empty", hidden: true }, "There are no data sets yet.");
  const more = h("button", { type: "button", hidden: true, onclick: () => load(state.next) }, "Show more");
  const table = h("table", { class: "datasets" },
    h("caption", { class: "unseen" }, "Data sets, newest first"),
    h("thead", {}, h("tr", {}, ["Name", "Kind", "Records", "Size", "Made", ""].map((title) =>
      h("th", { scope: "col", class: title === "Size" ? "number" : null }, title || h("span", { class: "unseen" }, "Actions"))))),
    rows);
  fill(root,
    h("div", { class: "head" }, h("h1", {}, "Data sets")),
    uploadForm({ signal, onStored: () => load(null) }),
    problem,
    h("div", { class: "card flush" }, table, empty), more);
  return load(null);

  async function load(cursor) {
    try {
      const page = await get("/datasets", { limit: PAGE, cursor }, { signal });
      state.items = cursor ? [...state.items, ...page.items] : page.items;
      state.next = page.next_cursor;
      fill(problem);
      draw();
    } catch (error) {
      if (!isAbort(error)) fill(problem, problemBox(error));
    }
  }

  function draw() {
    reconcile(rows, state.items, ({ id }) => id, row, () => {});
    empty.hidden = state.items.length > 0;
    table.hidden = !state.items.length;
    more.hidden = state.next === null;
  }

  function row(dataset) {
    return h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `#/datasets/${dataset.id}` }, titleOf(dataset))),
      h("td", {}, h("span", { class: "tag" }, dataset.kind)),
      h("td", {}, summary(dataset)),
      h("td", { class: "number" }, bytes(dataset.bytes)),
      h("td", { title: moment(dataset.created_at) }, `${ago(dataset.created_at)} by ${dataset.created_by}`),
      h("td", { class: "actions" },
        h("a", { class: "button", href: useLink(dataset), "aria-label": `Use ${titleOf(dataset)} in a new job` }, "Use"), " ",
        h("button", { type: "button", class: "danger", "aria-label": `Delete ${titleOf(dataset)}`, onclick: async () => {
          if (await confirmDelete(dataset)) load(null);
        } }, "Delete")));
  }
}

export function titleOf({ name, id }) {
  return name ?? id;
}

/** The address of a new job that trains on the data set. */
export function useLink({ kind, reference }) {
  return `#${address("/new", { task: kind === "sft" ? "finetune" : kind, dataset: reference })}`;
}

/** Ask, then delete. Resolves to whether it is gone. */
export function confirmDelete(dataset) {
  return openDialog({
    title: "Delete this data set?",
    body: [h("p", { class: "break" }, `${titleOf(dataset)}: ${summary(dataset)}, ${bytes(dataset.bytes)}. It cannot be brought back.`)],
    confirm: "Delete", dangerous: true,
    action: () => remove(path`/datasets/${dataset.id}`),
  });
}
