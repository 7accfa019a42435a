// One data set: what it holds, its lengths, its tokens for a model, its records.

import { get, path } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, count, moment } from "../format.js";
import { go, setTitle } from "../router.js";
import { downloadLink } from "../job/download.js";
import { histogram } from "./histogram.js";
import { confirmDelete, titleOf, useLink } from "./list.js";
import { recordCard } from "./records.js";
import { tokenCard } from "./tokens.js";

export async function showOne(root, { id, signal }) {
  const dataset = await get(path`/datasets/${id}`, {}, { signal });
  setTitle(titleOf(dataset));
  const splits = Object.keys(dataset.splits);
  const body = h("div", { class: "page" });
  const buttons = splits.map((split) => h("button", { type: "button", onclick: () => choose(split) }, split));
  fill(root,
    h("div", { class: "head" }, h("h1", { class: "break" }, titleOf(dataset)),
      h("a", { class: "button primary", href: useLink(dataset) }, "Use in a new job"),
      h("button", { type: "button", class: "danger", onclick: async () => {
        if (await confirmDelete(dataset)) go("/datasets");
      } }, "Delete")),
    h("div", { class: "card" }, h("dl", { class: "facts" }, [
      ["kind", dataset.kind], ["reference", h("code", {}, dataset.reference)], ["size", bytes(dataset.bytes)],
      ["sha256", h("code", {}, dataset.sha256)], ["made", `${moment(dataset.created_at)} by ${dataset.created_by}`], ["project", dataset.project],
    ].map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]))),
    splits.length > 1 && h("div", { class: "row", role: "group", "aria-label": "Split" }, buttons),
    body);
  choose(splits[0]);

  function choose(split) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === split));
    const about = dataset.splits[split];
    fill(body,
      h("section", { class: "card", "aria-labelledby": "split-title" },
        h("h2", { id: "split-title" }, `Split ${split}`),
        h("div", { class: "split" },
          h("dl", { class: "facts" }, [
            ["records", count(about.examples)], ["turns", count(about.turns)], ["size", bytes(about.bytes)],
            ["characters", count(about.characters.total)],
            ["file", downloadLink(about.url, `${titleOf(dataset)}-${split}.json`, "Download", `Download the split ${split}`)],
          ].map(([name, text]) => [h("dt", {}, name), h("dd", { class: "number" }, text)])),
          histogram(about.characters, "Characters"))),
      tokenCard(dataset, split, signal),
      recordCard(dataset, split, signal));
  }
}
