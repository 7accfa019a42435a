// Many points on few pixels: of each column of pixels what a line through all points would touch.

/**
 * The points to draw of a series between two indices.
 *
 * @param {number[]} xs growing
 * @param {number[]} ys NaN: a gap
 * @param {number} from index
 * @param {number} to index behind the last one
 * @param {(x: number) => number} place the pixel of an x
 * @returns {number[]} indices: all, or of each column the first, lowest, highest and last point
 */
export function thin(xs, ys, from, to, place) {
  const count = to - from;
  const width = count > 1 ? Math.abs(place(xs[to - 1]) - place(xs[from])) : 0;
  if (count <= width * 2 || count < 400) return Array.from({ length: count }, (_, n) => from + n);
  const kept = [];
  let column = Math.floor(place(xs[from]));
  let [first, low, high] = [from, from, from];
  const close = (last) => {
    for (const index of [first, ...(low < high ? [low, high] : [high, low]), last]) {
      if (kept.at(-1) !== index) kept.push(index);
    }
  };
  for (let index = from + 1; index < to; index += 1) {
    const here = Math.floor(place(xs[index]));
    if (here !== column) {
      close(index - 1);
      column = here;
      first = low = high = index;
    } else {
      if (!(ys[index] >= ys[low])) low = Number.isNaN(ys[index]) ? low : index;
      if (!(ys[index] <= ys[high])) high = Number.isNaN(ys[index]) ? high : index;
    }
  }
  close(to - 1);
  return kept;
}

/** The running mean of a series; `weight` (0 to 1) is how much of it is the past. The start is not pulled to 0. */
export function smooth(ys, weight) {
  if (!weight) return ys;
  const smoothed = new Array(ys.length);
  let mean = 0;
  let part = 1;
  for (let index = 0; index < ys.length; index += 1) {
    if (Number.isNaN(ys[index])) {
      smoothed[index] = NaN;
      continue;
    }
    mean = weight * mean + (1 - weight) * ys[index];
    part *= weight;
    smoothed[index] = mean / (1 - part);
  }
  return smoothed;
}
