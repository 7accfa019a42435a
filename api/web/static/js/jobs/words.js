// The words of the API that the dashboard offers to choose from, and what a job's state means in a few words.

import { duration, number, words } from "../format.js";

export const STATUSES = ["queued", "starting", "running", "stopping", "succeeded", "failed", "cancelled"];
export const TASKS = ["finetune", "dpo", "kto", "quantize", "merge", "export", "evaluate"];
const TERMINAL = new Set(["succeeded", "failed", "cancelled"]);
const FAULTS = {
  user: "The request or its config",
  data: "The data",
  infrastructure: "The service's machines, not the job",
  nobody: "Nobody",
};

/** Whether a status is final until a retry. */
export function isOver(status) {
  return TERMINAL.has(status);
}

/** What a job is called where it has no name. */
export function titleOf(job) {
  return job.name ?? job.id;
}

/** Who can do something about a reason, in words. */
export function faultWords(fault) {
  return FAULTS[fault] ?? "";
}

/** Why a job is where it is, on one line; empty where its status says it all. */
export function whyWords(job) {
  if (job.status === "queued") return queueWords(job.queue);
  if (job.status === "failed" || job.status === "cancelled") return words(job.reason);
  if (job.status === "stopping") return "saving a checkpoint";
  return job.attempt > 1 ? `attempt ${job.attempt}` : "";
}

/** A queued job's place, and what it waits for. */
export function queueWords(queue) {
  if (!queue) return "";
  return queue.position === null ? queue.why : `${place(queue)} · ${queue.why}`;
}

function place({ position, ahead }) {
  return ahead === 0 ? "next" : `no. ${number(position)}`;
}

/** How far a job is: a share from 0 to 1, null while unknown. */
export function shareOf({ status, progress }) {
  if (status === "succeeded") return 1;
  const { step, total_steps: total } = progress;
  return step === null || !total ? null : Math.min(1, step / total);
}

/** Steps and the time that is left, in words. */
export function progressWords({ status, progress }) {
  const { step, total_steps: total, eta_s: eta } = progress;
  if (step === null) return "";
  const steps = total ? `${number(step)} / ${number(total)}` : `step ${number(step)}`;
  return status === "running" && eta !== null ? `${steps} · ${duration(eta)} left` : steps;
}
