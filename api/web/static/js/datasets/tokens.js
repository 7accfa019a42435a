// What the records are for a model: how many tokens, and which of them are learned.

import { get, path, post } from "../api.js";
import { fill, h } from "../dom.js";
import { count, number } from "../format.js";
import { suggestionLists } from "../new/suggestions.js";
import { isAbort, problemBox } from "../problems.js";
import { tokenPreview } from "../tokens.js";
import { histogram } from "./histogram.js";

const PREVIEWED = 5;
const PREFERENCES = ["dpo", "kto"];

/** A card that counts and shows tokens of a split. */
export function tokenCard(dataset, split, signal) {
  const suggestions = suggestionLists(signal);
  const model = h("input", { id: "tokens-model", list: "models", required: true, autocomplete: "off", spellcheck: "false" });
  const longest = h("input", { id: "tokens-longest", type: "number", min: 2, value: 2048, size: 8 });
  const result = h("div", { class: "token-result", "aria-live": "polite" });
  const show = h("button", { type: "button", onclick: () => form.reportValidity() && busy(preview) }, "Show tokens");
  const form = h("form", { class: "row end", onsubmit: (event) => {
    event.preventDefault();
    busy(countTokens);
  } },
    h("div", { class: "field" }, h("label", { for: model.id }, "Model"), model),
    h("div", { class: "field" }, h("label", { for: longest.id }, "Longest"), longest),
    h("button", { type: "submit", class: "primary" }, "Count tokens"), split === "train" && show, suggestions.elements);

  async function busy(what) {
    fill(result, h("p", { class: "muted" }, "Counting …"));
    try {
      fill(result, await what());
    } catch (error) {
      if (!isAbort(error)) fill(result, problemBox(error));
    }
  }

  async function countTokens() {
    const limit = Number(longest.value);
    const query = { model: model.value.trim(), split, max_length: limit };
    const found = await get(path`/datasets/${dataset.id}/statistics`, query, { signal });
    const over = found.over_max_length;
    return [
      h("dl", { class: "facts" },
        Object.entries({
          "all tokens": count(found.total),
          counted: `${count(found.counted)} of ${count(found.examples)} records`,
          "chat template": found.template ?? "none",
          ...Object.fromEntries(Object.entries(found.percentiles).map(([share, length]) => [`${share} % have at most`, count(length)])),
          [`longer than ${count(limit)}`]: `${number(100 * over, 3)} %`,
        }).map(([name, text]) => [h("dt", {}, name), h("dd", { class: "number" }, text)])),
      histogram(found, "Tokens", limit),
    ];
  }

  async function preview() {
    const limit = Number(longest.value);
    const data = PREFERENCES.includes(dataset.kind)
      ? { train_dataset_path: dataset.reference, max_seq_len: limit, max_prompt_len: limit - 1 }
      : { dataset_name_or_path: dataset.reference, max_length: limit, src_length: limit - 1 };
    const task = PREFERENCES.includes(dataset.kind) ? dataset.kind : "finetune";
    const config = { model_name_or_path: model.value.trim(), output_dir: "out", do_train: true, max_steps: 1, ...data };
    const answer = await post("/jobs/validate", { task, config, force: true }, { query: { preview: PREVIEWED }, signal });
    if (answer.preview) return tokenPreview(answer.preview);
    return h("p", { class: "note" }, answer.warnings.find(({ loc }) => loc[0] === "query")?.msg ?? "There is nothing to show.");
  }

  return h("section", { class: "card", "aria-labelledby": "tokens-title" }, h("h2", { id: "tokens-title" }, "Tokens"), form, result);
}
