// The numbers of a job as lists by name. A step that a later attempt repeats takes the place of the earlier one.

import { get, path } from "../api.js";
import { indexOf } from "../chart/scale.js";

const POINTS = 5000;
const PAGE = 5000;
const MOST_DETAIL_PAGES = 2;

export class Metrics {
  /** By kind and name, such as `train/loss`: {xs, ys}. */
  series = new Map();
  /** The last item that has come; streams go on behind it. */
  lastId = 0;
  /** Whether some numbers were left out. */
  thinned = false;
  #loaded = false;
  #idOfStep = { xs: [], ys: [] };

  /** @param {string} jobId */
  constructor(jobId) {
    this.base = path`/jobs/${jobId}/metrics`;
  }

  /** Read what there is, thinned where it is much; nothing when that was done before. */
  async load(signal) {
    if (this.#loaded) return;
    const [train, evaluations] = await Promise.all(
      ["train", "eval"].map((kind) => get(this.base, { kind, points: POINTS }, { signal })));
    this.thinned = train.thinned || evaluations.thinned;
    this.add([...train.items, ...evaluations.items]);
    this.#loaded = true;
  }

  /**
   * Read all numbers of a stretch of steps where some were left out.
   *
   * @returns {Promise<boolean>} whether some have come
   */
  async detail([low, high], signal) {
    if (!this.thinned) return false;
    const { xs, ys } = this.#idOfStep;
    const first = indexOf(xs, low) - 1;
    let after = first < 0 ? 0 : ys[first];
    for (let page = 0; page < MOST_DETAIL_PAGES; page += 1) {
      const { items, next_cursor: next } = await get(this.base, { kind: "train", after, limit: PAGE }, { signal });
      this.add(items);
      if (next === null || items.at(-1).step > high) break;
      after = next;
    }
    return true;
  }

  /** Take in items of a page or a stream. */
  add(items) {
    for (const { id, kind, step, values } of items) {
      this.lastId = Math.max(this.lastId, id);
      if (kind === "train") put(this.#idOfStep, step, id);
      for (const [name, value] of Object.entries(values)) {
        if (value !== null && typeof value !== "number") continue;
        put(this.#of(`${kind}/${name}`), step, value ?? NaN);
      }
    }
  }

  #of(name) {
    let series = this.series.get(name);
    if (!series) this.series.set(name, (series = { xs: [], ys: [] }));
    return series;
  }
}

function put({ xs, ys }, x, y) {
  if (!xs.length || x > xs.at(-1)) {
    xs.push(x);
    ys.push(y);
    return;
  }
  const index = indexOf(xs, x);
  if (xs[index] === x) ys[index] = y;
  else {
    xs.splice(index, 0, x);
    ys.splice(index, 0, y);
  }
}
