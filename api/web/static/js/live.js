// Staying up to date: event streams that are taken up again, and calls that are repeated. Both rest while the
// page is not seen: a browser opens only six connections to a server, for all of its tabs together.

import { address, send } from "./api.js";
import { Problem, isAbort } from "./problems.js";
import { EventParser } from "./sse.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/**
 * Follow a history until the job's `end`, or until `signal`.
 *
 * @param {string} base such as `/jobs/<id>/logs`
 * @param {object} query
 * @param {object} options
 * @param {AbortSignal} options.signal
 * @param {(items: Array) => void} options.onItems what has come since, parsed, in one list for each piece read
 * @param {(end: object) => void} [options.onEnd]
 * @param {(live: boolean) => void} [options.onLive] whether the stream is open
 * @param {string|null} [options.after] id of the last item that is there already
 * @throws {Problem} when the server refuses for good
 */
export async function follow(base, query, { signal, onItems, onEnd, onLive, after = null }) {
  const place = { lastId: after };
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    await seen(signal);
    try {
      const { end, received } = await readStream(base, query, place, { signal, onItems, onLive });
      if (end) {
        onEnd?.(end);
        return;
      }
      if (received) wait = FIRST_WAIT_MS;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
      if (error instanceof Problem && error.retryAfter) wait = Math.max(wait, error.retryAfter * 1000);
    }
    onLive?.(false);
    await sleep(wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

async function readStream(base, query, place, { signal, onItems, onLive }) {
  const hidden = hiddenSignal();
  const either = AbortSignal.any([signal, hidden.signal]);
  const headers = { Accept: "text/event-stream" };
  if (place.lastId !== null) headers["Last-Event-ID"] = place.lastId;
  let received = false;
  try {
    const response = await send("GET", address(base, query), { headers, signal: either });
    onLive?.(true);
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return { end: null, received };
      const events = parser.feed(value);
      const items = events.filter(({ type }) => type !== "end" && type !== "bye");
      if (items.length) {
        received = true;
        onItems(items.map(({ data }) => JSON.parse(data)));
        place.lastId = items.at(-1).id ?? place.lastId;
      }
      const end = events.find(({ type }) => type === "end");
      if (end) return { end: JSON.parse(end.data), received };
      if (events.some(({ type }) => type === "bye")) return { end: null, received };
    }
  } catch (error) {
    if (!isAbort(error) || signal.aborted || !hidden.signal.aborted) throw error;
    return { end: null, received: true };
  } finally {
    hidden.stop();
  }
}

function hiddenSignal() {
  const controller = new AbortController();
  const look = () => {
    if (document.hidden) controller.abort();
  };
  document.addEventListener("visibilitychange", look);
  return { signal: controller.signal, stop: () => document.removeEventListener("visibilitychange", look) };
}

/** Resolves when the page is seen, or at once if it is. */
function seen(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    document.addEventListener("visibilitychange", done);
    signal.addEventListener("abort", done);
  });
}

/** Wait; `signal` ends it early. */
export function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done);
    if (signal?.aborted) done();
  });
}

/**
 * Repeat a call until `signal`: at once, then `interval()` milliseconds after each answer; null ends it.
 *
 * @param {(signal: AbortSignal) => Promise<void>} call
 * @param {object} options
 * @param {AbortSignal} options.signal
 * @param {() => number|null} options.interval
 * @param {(error: Error) => void} options.onError also called for errors that pass
 * @returns {{now: () => void}} `now` calls again without waiting; an answer on its way is dropped
 */
export function repeat(call, { signal, interval, onError }) {
  let round = new AbortController();
  const now = () => round.abort();
  (async () => {
    let failures = 0;
    while (!signal.aborted) {
      await seen(signal);
      round = new AbortController();
      const either = AbortSignal.any([signal, round.signal]);
      try {
        await call(either);
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        if (!isAbort(error)) {
          failures += 1;
          onError(error);
        }
      }
      if (round.signal.aborted) continue;
      const wait = failures ? Math.min(FIRST_WAIT_MS * 2 ** failures, LONGEST_WAIT_MS) : interval();
      await sleep(wait ?? 2 ** 31 - 1, either);
    }
  })();
  return { now };
}
