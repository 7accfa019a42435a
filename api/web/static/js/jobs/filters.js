// What the list of jobs is narrowed to. The address keeps it, so that it can be sent to somebody.

import { fill, h } from "../dom.js";
import { STATUSES, TASKS } from "./words.js";

const TYPING_MS = 250;

/**
 * The form above the list.
 *
 * @param {URLSearchParams} query what is asked for at first: `status`, `task`, `text`, `label` (repeatable)
 * @param {(filters: object) => void} onChange
 */
export function filterForm(query, onChange) {
  const labels = query.getAll("label");
  const status = select("status", "Status", STATUSES, query.get("status"));
  const task = select("task", "Task", TASKS, query.get("task"));
  const text = h("input", { id: "filter-text", type: "search", placeholder: "Part of a name, or an id", value: query.get("text") ?? "" });
  const label = h("input", { id: "filter-label", placeholder: "key:value", pattern: "[^:]+:.*", title: "key:value", size: 14 });
  const chips = h("ul", { class: "chips", "aria-label": "Labels that jobs must have" });
  let timer = 0;

  const filters = () => ({ status: status.value, task: task.value, text: text.value.trim(), label: [...labels] });
  const changed = () => {
    clearTimeout(timer);
    showChips();
    onChange(filters());
  };
  const addLabel = (value) => {
    if (!labels.includes(value)) labels.push(value);
    changed();
  };

  function showChips() {
    fill(chips, labels.map((each) => h("li", {}, h("button", {
      type: "button", class: "tag", "aria-label": `Remove the label ${each}`,
      onclick: () => {
        labels.splice(labels.indexOf(each), 1);
        changed();
        label.focus();
      },
    }, `${each} ×`))));
    chips.hidden = !labels.length;
  }

  for (const choice of [status, task]) choice.addEventListener("change", changed);
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(changed, TYPING_MS);
  });
  label.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const value = label.value.trim();
    if (!value) return;
    if (!label.reportValidity()) return;
    label.value = "";
    addLabel(value);
  });
  showChips();
  const form = h("form", { class: "filters", role: "search", "aria-label": "Jobs", onsubmit: (event) => event.preventDefault() },
    field("filter-text", "Search", text), field("filter-status", "Status", status), field("filter-task", "Task", task),
    field("filter-label", "Label", label), chips);
  return { form, filters, addLabel };
}

function select(name, title, options, chosen) {
  const element = h("select", { id: `filter-${name}` }, h("option", { value: "" }, "any"),
    options.map((option) => h("option", { value: option }, option)));
  element.value = options.includes(chosen) ? chosen : "";
  element.setAttribute("aria-label", title);
  return element;
}

function field(id, title, input) {
  return h("div", { class: "field" }, h("label", { for: id }, title), input);
}
