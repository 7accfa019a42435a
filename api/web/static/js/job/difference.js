// How a job's config differs from an argument file that ships.

import { value } from "../format.js";

/**
 * Each argument of the file and of the job with both values.
 *
 * @param {object} shipped the argument file
 * @param {object} given the job's config as it was given
 * @param {object} resolved as it runs, with the default of what was not given
 * @returns {Array<{name: string, kind: "equal"|"changed"|"added"|"removed", before: string, after: string}>}
 *   by name; `removed`: not given, so that the job has the default
 */
export function differences(shipped, given, resolved) {
  const names = [...new Set([...Object.keys(shipped), ...Object.keys(given)])].sort();
  return names.map((name) => {
    const after = name in given ? given[name] : resolved[name];
    const texts = { before: name in shipped ? value(shipped[name]) : "", after: after === undefined ? "" : value(after) };
    return { name, kind: kindOf(name, shipped, given, after), ...texts };
  });
}

function kindOf(name, shipped, given, after) {
  if (!(name in shipped)) return "added";
  if (same(shipped[name], after)) return "equal";
  return name in given ? "changed" : "removed";
}

/** Numbers and booleans may be written as text. */
function same(one, other) {
  if (value(one ?? null) === value(other ?? null)) return true;
  const numbers = [one, other].map((each) => (each === null || each === "" || typeof each === "boolean" ? NaN : Number(each)));
  if (numbers.every(Number.isFinite)) return numbers[0] === numbers[1];
  return String(one).toLowerCase() === String(other).toLowerCase();
}

/** The name of the file that a job is most like: of its model's family, then with most equal arguments; null of none. */
export function closest(given, resolved, presets) {
  const model = String(given.model_name_or_path ?? "").toLowerCase();
  let best = null;
  let most = -1;
  for (const [name, shipped] of presets) {
    const equal = Object.keys(shipped).filter((each) => same(shipped[each], given[each] ?? resolved[each])).length;
    const likeness = equal + (model.includes(name.split("/")[0]) ? 1000 : 0);
    if (likeness > most) [best, most] = [name, likeness];
  }
  return best;
}
