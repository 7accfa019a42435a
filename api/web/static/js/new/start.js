// Where a new job starts from: nothing, an argument file that ships, or another job.

import { all, get, path } from "../api.js";

const MEMBERS = ["name", "priority", "max_retries", "timeout_s", "labels", "resources"];

/** What stands for another job among the names of argument files. */
export const OTHER_JOB = "job";

/**
 * The start that the address asks for: `clone=<job>`, `preset=<family>/<name>`, `task=`, `dataset=dataset:<id>`.
 *
 * @returns {Promise<{task, config, members, preset, title}>}
 */
export async function startOf(query, signal) {
  const clone = query.get("clone");
  if (clone) return cloneOf(clone, signal);
  const preset = query.get("preset");
  const start = preset ? await presetOf(preset, signal) : empty(query.get("task") ?? "finetune");
  const dataset = query.get("dataset");
  if (dataset) start.config = { ...start.config, ...datasetArguments(start.task, dataset) };
  return start;
}

async function cloneOf(id, signal) {
  const job = await get(path`/jobs/${id}`, {}, { signal });
  const members = Object.fromEntries(MEMBERS.map((name) => [name, job[name]]));
  return { task: job.task, config: job.config, members, preset: OTHER_JOB, title: `Copy of ${job.name ?? job.id}` };
}

/** An argument file that ships, named `family/name`. */
export async function presetOf(preset, signal) {
  const [family, name] = preset.split("/");
  const { task, config } = await get(path`/presets/${family}/${name}`, {}, { signal });
  return { task, config, members: null, preset, title: "New job" };
}

export function empty(task) {
  return { task, config: {}, members: null, preset: "", title: "New job" };
}

function datasetArguments(task, reference) {
  if (task === "dpo" || task === "kto") return { train_dataset_path: reference };
  return { dataset_name_or_path: reference };
}

/** The argument files that ship, of tasks that there are. */
export async function presetsOnOffer(signal) {
  return (await all("/presets", {}, { signal })).filter(({ available }) => available);
}
