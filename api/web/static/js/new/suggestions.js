// What may stand in arguments that name models, data and jobs, offered while they are typed.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { isAbort } from "../problems.js";

const MOST = 100;
const DATA = /^(dataset_name_or_path|train_dataset_path|dev_dataset_path)$/;
const MODELS = /^(model_name_or_path|tokenizer_name_or_path)$/;
const RESULTS = /^(lora_path|prefix_path|resume_from_checkpoint)$/;

/** Lists that are filled once the server has answered; an argument has none while it does not. */
export function suggestionLists(signal) {
  const lists = { models: h("datalist", { id: "models" }), data: h("datalist", { id: "data" }), results: h("datalist", { id: "results" }) };
  load(lists, signal);
  return {
    elements: Object.values(lists),
    idFor(name) {
      if (DATA.test(name)) return "data";
      if (MODELS.test(name)) return "models";
      return RESULTS.test(name) ? "results" : null;
    },
  };
}

async function load({ models, data, results }, signal) {
  const ask = async (base, query = {}) => {
    try {
      return (await get(base, { limit: MOST, ...query }, { signal })).items;
    } catch (error) {
      if (!isAbort(error)) return []; // suggestions only: the form works without them
      return [];
    }
  };
  const [known, sets, jobs] = await Promise.all([ask("/models"), ask("/datasets"), ask("/jobs", { status: "succeeded", view: "summary" })]);
  const made = jobs.map(({ id, name, task }) => option(`job:${id}`, `${name ?? "result"} (${task})`));
  fill(models, known.map(({ name, available }) => option(name, available === "local" ? "on this server" : "")), made.map((each) => each.cloneNode(true)));
  fill(data, sets.map(({ reference, name, kind }) => option(reference, `${name ?? "data set"} (${kind})`)));
  fill(results, made);
}

function option(value, label) {
  return h("option", { value, label: label || null });
}
