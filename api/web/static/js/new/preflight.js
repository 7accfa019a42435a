// Asks the server about the job while it is written: POST /jobs/validate, once the typing rests.

import { post } from "../api.js";
import { Problem, isAbort } from "../problems.js";

const TYPING_MS = 350;

/**
 * @param {AbortSignal} signal ends it
 * @param {(state: object) => void} onState `{state: "checking"}`, `{state: "good", answer}`, `{state: "bad", problem,
 *   answer}` (with `answer` where only memory is short) or `{state: "unknown", problem}`
 */
export function startPreflight(signal, onState) {
  let timer = 0;
  let round = new AbortController();

  function check(body, wait = TYPING_MS) {
    clearTimeout(timer);
    round.abort();
    round = new AbortController();
    const either = AbortSignal.any([signal, round.signal]);
    onState({ state: "checking" });
    timer = setTimeout(() => ask(body, either), wait);
  }

  async function ask(body, stop) {
    try {
      tell({ state: "good", answer: await post("/jobs/validate", body, { signal: stop }) });
    } catch (error) {
      if (isAbort(error)) return;
      if (!(error instanceof Problem)) throw error;
      if (error.status !== 422) tell({ state: "unknown", problem: error });
      else tell({ state: "bad", problem: error, answer: await withForce(error, body, stop) });
    }

    function tell(state) {
      if (!stop.aborted) onState(state);
    }
  }

  signal.addEventListener("abort", () => clearTimeout(timer));
  return check;
}

/** What the server would say of a job that it refuses for its memory alone; null for any other. */
async function withForce({ errors }, body, signal) {
  if (body.force || errors.length !== 1 || errors[0].loc.join(".") !== "body.resources") return null;
  try {
    return await post("/jobs/validate", { ...body, force: true }, { signal });
  } catch (error) {
    if (isAbort(error) || error instanceof Problem) return null;
    throw error;
  }
}
