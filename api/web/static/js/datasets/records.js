// The records of a split, some at a time.

import { get, path } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { count } from "../format.js";
import { isAbort, problemBox } from "../problems.js";

const PAGE = 10;

/** A card with the records of a split. */
export function recordCard(dataset, split, signal) {
  const state = { offset: 0, next: null };
  const list = h("div", { class: "records" });
  const where = h("span", { class: "muted number", role: "status" });
  const before = h("button", { type: "button", onclick: () => load(Math.max(0, state.offset - PAGE)) }, "Earlier");
  const after = h("button", { type: "button", onclick: () => load(state.next) }, "Later");
  load(0);
  return h("section", { class: "card", "aria-labelledby": "records-title" },
    h("h2", { id: "records-title" }, "Records"), list, h("div", { class: "pager" }, where, before, after));

  async function load(offset) {
    try {
      const page = await get(path`/datasets/${dataset.id}/records`, { split, offset, limit: PAGE }, { signal });
      Object.assign(state, { offset, next: page.next_offset });
      fill(list, page.items.map(record));
      setText(where, page.items.length ? `${count(offset + 1)} – ${count(offset + page.items.length)} of ${count(page.total)}` : "");
      before.disabled = offset === 0;
      after.disabled = page.next_offset === null;
    } catch (error) {
      if (!isAbort(error)) fill(list, problemBox(error));
    }
  }
}

function record({ line, record: values }) {
  const rows = values && Object.entries(values).map(([name, value]) => [
    h("dt", {}, name), h("dd", { class: "text" }, typeof value === "string" ? value : JSON.stringify(value, null, 1)),
  ]);
  return h("article", { class: "one", "aria-label": `Record ${line}` }, h("span", { class: "muted number" }, count(line)),
    rows ? h("dl", { class: "facts" }, rows) : h("p", { class: "muted" }, "too long to show"));
}
