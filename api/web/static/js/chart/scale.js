// From numbers to places on an axis, and where its marks are.

/** A linear or logarithmic scale of `low`..`high` onto `from`..`to`. */
export function scale(low, high, from, to, log = false) {
  const value = log ? Math.log10 : (number) => number;
  const start = value(low);
  const span = value(high) - start || 1;
  const place = (number) => from + ((value(number) - start) / span) * (to - from);
  const back = (pixel) => {
    const number = start + ((pixel - from) / (to - from)) * span;
    return log ? 10 ** number : number;
  };
  return { place, back, low, high, log };
}

/** Round numbers between two others, about so many. */
export function ticks(low, high, about) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / Math.max(1, about);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= raw);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n += 1) found.push(n * step);
  return found;
}

/** The powers of ten between two numbers, with 2 and 5 between them where there are few. */
export function logTicks(low, high) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const every = Math.ceil((last - first) / 6);
  const factors = last - first <= 2 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = first; power <= last; power += every) {
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
    }
  }
  return found.length > 1 ? found : ticks(low, high, 4);
}

/** The first index of a growing list whose number is at least `wanted`. */
export function indexOf(numbers, wanted) {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index of the number that is closest to `wanted`; -1 of an empty list. */
export function nearest(numbers, wanted) {
  const index = indexOf(numbers, wanted);
  if (index === 0) return numbers.length ? 0 : -1;
  if (index === numbers.length) return index - 1;
  return wanted - numbers[index - 1] <= numbers[index] - wanted ? index - 1 : index;
}
