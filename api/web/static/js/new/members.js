// What a job has beside its config: name, priority, labels, devices and limits.

import { h, fill, setOrRemove } from "../dom.js";

const NUMBERS = ["priority", "max_retries", "timeout_s"];

/** The part of the form beside the arguments, its name apart from the rest; `onChange` is called after every change. */
export function memberForm(onChange) {
  const input = (id, options = {}) => h("input", { id: `member-${id}`, autocomplete: "off", ...options });
  const controls = {
    name: input("name", { placeholder: "for people", maxlength: 200 }),
    priority: input("priority", { inputmode: "numeric", placeholder: "0" }),
    max_retries: input("max_retries", { inputmode: "numeric", placeholder: "0" }),
    timeout_s: input("timeout_s", { inputmode: "decimal", placeholder: "none" }),
    device: h("select", { id: "member-device" }, h("option", { value: "" }, "as the config says, else a GPU"),
      h("option", { value: "gpu" }, "GPU"), h("option", { value: "cpu" }, "CPU")),
    devices_per_node: input("devices_per_node", { inputmode: "numeric", placeholder: "what the config needs" }),
    nodes: input("nodes", { inputmode: "numeric", placeholder: "1" }),
    labels: h("textarea", { id: "member-labels", rows: 2, placeholder: "team: search", spellcheck: "false" }),
    force: h("input", { type: "checkbox", id: "member-force" }),
  };
  const fields = {
    name: field(controls.name, "Name", ""),
    priority: field(controls.priority, "Priority", "-1000 to 1000; higher runs first"),
    device: field(controls.device, "Kind of device", ""),
    devices_per_node: field(controls.devices_per_node, "Devices of a host", "a multiple of what the parallel degrees need"),
    nodes: field(controls.nodes, "Hosts", ""),
    max_retries: field(controls.max_retries, "Retries", "of attempts that crash"),
    timeout_s: field(controls.timeout_s, "Longest attempt in seconds", ""),
    labels: field(controls.labels, "Labels", "a line each: name: value"),
  };
  const force = h("label", { class: "check" }, controls.force, "Queue it even if no known device has enough memory");
  const { name: naming, ...others } = fields;
  const element = h("details", { class: "card section" }, h("summary", {}, h("h2", {}, "Devices, priority, labels and limits")),
    h("div", { class: "members" }, Object.values(others).map((each) => each.element)), force);
  for (const control of Object.values(controls)) {
    control.addEventListener(control.tagName === "SELECT" || control.type === "checkbox" ? "change" : "input", onChange);
  }

  /** The members of POST /jobs that are set. */
  function members() {
    const found = {};
    const name = controls.name.value.trim();
    if (name) found.name = name;
    for (const each of NUMBERS) assign(found, each, numeral(controls[each].value));
    const resources = {};
    assign(resources, "device", controls.device.value || undefined);
    for (const each of ["nodes", "devices_per_node"]) assign(resources, each, numeral(controls[each].value));
    if (Object.keys(resources).length) found.resources = resources;
    const labels = labelsIn(controls.labels.value);
    if (Object.keys(labels).length) found.labels = labels;
    if (controls.force.checked) found.force = true;
    return found;
  }

  /** Fill in what another job has. */
  function show(job) {
    controls.name.value = job.name ?? "";
    for (const each of NUMBERS) controls[each].value = job[each] || "";
    for (const each of ["device", "nodes", "devices_per_node"]) controls[each].value = job.resources?.[each] ?? "";
    controls.labels.value = Object.entries(job.labels ?? {}).map(([key, value]) => `${key}: ${value}`).join("\n");
  }

  /** Show what is wrong, lists by name; those of `resources` stand at their member or at the first one. */
  function tell(problems) {
    for (const [name, each] of Object.entries(fields)) each.tell(problems.get(name) ?? []);
  }

  function focus(name) {
    if (name in others) element.open = true;
    controls[name]?.focus();
  }

  return { element, naming: naming.element, members, show, tell, focus, has: (name) => name in fields };
}

function assign(object, name, value) {
  if (value !== undefined) object[name] = value;
}

function numeral(text) {
  const trimmed = text.trim();
  if (!trimmed) return undefined;
  return Number.isFinite(Number(trimmed)) ? Number(trimmed) : trimmed;
}

function labelsIn(text) {
  const labels = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const [key, ...value] = line.split(":");
    labels[key.trim()] = value.join(":").trim();
  }
  return labels;
}

function field(control, title, hint) {
  const note = h("span", { class: "hint", id: `${control.id}-hint` }, hint);
  const problem = h("div", { class: "wrong", id: `${control.id}-problem` });
  const element = h("div", { class: "field" }, h("label", { for: control.id }, title), control, hint && note, problem);
  const tell = (problems) => {
    fill(problem, problems.map(({ msg, hint: remedy }) => h("p", {}, msg, remedy && [" ", h("span", { class: "hint" }, remedy)])));
    setOrRemove(control, "aria-invalid", problems.length ? "true" : null);
    const notes = [hint && note.id, problems.length && problem.id].filter(Boolean).join(" ");
    setOrRemove(control, "aria-describedby", notes || null);
  };
  tell([]);
  return { element, tell };
}
