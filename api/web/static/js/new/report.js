// What the server says of the job that is being written: problems, warnings, and what it will take.

import { fill, h, setText } from "../dom.js";
import { bytes, count, words } from "../format.js";
import { largestDevice, memoryBar } from "../memory.js";
import { placeOf, problemBox } from "../problems.js";

/**
 * @param {object} options
 * @param {(loc: Array) => void} options.goTo puts the focus on what a problem is about
 * @param {() => Array} options.hosts those of GET /hosts
 */
export function report({ goTo, hosts }) {
  const line = h("p", { class: "verdict", role: "status" });
  const problems = h("div", {});
  const warnings = h("div", {});
  const estimate = h("div", { class: "estimate" });
  const old = h("p", { class: "hint", hidden: true }, "Reckoned before the last changes:");
  const element = h("div", { class: "report" }, line, problems, old, estimate, warnings);

  function show({ state, problem, answer }) {
    element.dataset.state = state;
    setText(line, verdict(state, problem));
    if (state === "checking") return;
    if (state === "unknown") fill(problems, problemBox(problem));
    else fill(problems, problem ? list("Problems", problem.errors, goTo) : null);
    fill(warnings, answer?.warnings.length ? list("Warnings", answer.warnings, goTo) : null);
    // What was known before a mistake is of use until it is mended.
    if (answer) fill(estimate, answer.estimate && taken(answer.estimate, largestDevice(hosts(), answer.resources), answer.resources));
    old.hidden = Boolean(answer) || !estimate.firstChild;
  }

  return { element, show };
}

function verdict(state, problem) {
  if (state === "checking") return "Checking …";
  if (state === "good") return "It can be submitted.";
  if (state === "unknown") return "It could not be checked.";
  const { length } = problem.errors;
  return length === 1 ? "1 problem" : `${length} problems`;
}

function list(title, items, goTo) {
  return h("section", { class: title === "Problems" ? "problem" : "note" },
    h("h3", {}, title),
    h("ul", {}, items.map((item) => h("li", {},
      placeOf(item.loc) && [h("button", { type: "button", class: "place", onclick: () => goTo(item.loc) }, placeOf(item.loc)), " "],
      item.msg, item.hint && h("span", { class: "hint" }, ` ${item.hint}`)))));
}

function taken(estimate, device, resources) {
  const { checkpoints, memory } = estimate;
  const facts = [
    ["devices", `${resources.nodes > 1 ? `${resources.nodes} × ` : ""}${resources.devices_per_node} ${resources.device}`],
    ["parameters", count(estimate.parameters)],
    ["trainable", count(estimate.trainable_parameters)],
    ["steps", count(estimate.optimizer_steps)],
    ["tokens of the run", count(estimate.run_tokens)],
    ["a checkpoint", checkpoints && bytes(checkpoints.bytes)],
    ["all checkpoints", checkpoints && bytes(checkpoints.total_bytes)],
  ].filter(([, text]) => text && text !== "–");
  return [
    memory && memoryBar(memory, device),
    h("dl", { class: "facts" }, facts.map(([name, text]) => [h("dt", {}, words(name)), h("dd", { class: "number" }, text)])),
    estimate.notes.map((note) => h("p", { class: "hint" }, note)),
  ];
}
