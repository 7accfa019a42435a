// The arguments of a job as a form: sections that open, a search, and what differs from where it started.

import { fill, h, setText } from "../dom.js";
import { FIRST_SECTION, UNKNOWN_SECTION, argumentsOf, unknownArgument } from "./arguments.js";
import { argumentField, countText } from "./field.js";

/**
 * @param {object} options
 * @param {(name: string, value: unknown) => void} options.onChange
 * @param {(name: string) => string|null} options.suggestions id of the datalist of an argument
 */
export function argumentForm({ onChange, suggestions }) {
  const search = h("input", { id: "argument-search", type: "search", placeholder: "Part of a name or of what it says" });
  const onlyChanged = h("input", { type: "checkbox", id: "only-changed" });
  const alsoIdle = h("input", { type: "checkbox", id: "also-idle" });
  const found = h("p", { class: "muted", role: "status" });
  const sections = h("div", { class: "sections" });
  const element = h("div", { class: "arguments" },
    h("div", { class: "argument-filters" },
      h("div", { class: "field" }, h("label", { for: "argument-search" }, "Find an argument"), search),
      h("label", { class: "check" }, onlyChanged, "Only what differs from the start"),
      h("label", { class: "check" }, alsoIdle, "Also what has no effect or is refused")),
    found, sections);
  let parts = [];
  let fields = new Map();

  for (const [control, event] of [[search, "input"], [onlyChanged, "change"], [alsoIdle, "change"]]) {
    control.addEventListener(event, filter);
  }

  const fieldOf = (argument) => argumentField(argument, {
    suggestions: suggestions(argument.name),
    onChange: (name, value) => {
      onChange(name, value);
      count();
    },
  });

  /** Show a task's arguments with the values of a config, and what they were at the start. */
  function show(schema, config, base) {
    const known = argumentsOf(schema);
    const names = new Set(known.map(({ name }) => name));
    const strange = [...new Set([...Object.keys(config), ...Object.keys(base)])].filter((name) => !names.has(name));
    fields = new Map([...strange.map(unknownArgument), ...known].map((argument) => [argument.name, fieldOf(argument)]));
    for (const [name, field] of fields) field.show(config[name], base[name]);
    parts = grouped([...fields.values()]).map(([title, members]) => section(title, members));
    fill(sections, parts.map((part) => part.element));
    filter();
    count();
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const narrowed = words.length > 0 || onlyChanged.checked;
    let shown = 0;
    for (const { element: part, fields: members, open } of parts) {
      let visible = 0;
      for (const field of members) {
        const usable = field.argument.standing === "supported" || alsoIdle.checked || field.isSet();
        const wanted = usable && field.matches(words) && (!onlyChanged.checked || field.differs());
        field.element.hidden = !wanted;
        visible += wanted;
      }
      part.hidden = !visible;
      part.open = narrowed || open();
      shown += visible;
    }
    setText(found, narrowed ? `${shown} of ${fields.size} arguments` : "");
  }

  function count() {
    for (const part of parts) countText(part.counts, part.fields);
  }

  /** Show what is wrong and what is doubtful with each argument, lists by name. */
  function tell(problems, warnings) {
    for (const [name, field] of fields) field.tell(problems.get(name) ?? [], warnings.get(name) ?? []);
    count();
  }

  /** Put the focus on an argument, whatever is shown. */
  function focus(name) {
    const field = fields.get(name);
    if (!field) return false;
    field.element.hidden = false;
    const part = field.element.closest("details");
    part.hidden = false;
    part.open = true;
    field.focus();
    return true;
  }

  return { element, show, tell, focus, has: (name) => fields.has(name) };
}

function grouped(fields) {
  const groups = new Map([[UNKNOWN_SECTION, []], [FIRST_SECTION, []]]);
  for (const field of fields) {
    const { section: title } = field.argument;
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(field);
  }
  return [...groups].filter(([, members]) => members.length);
}

function section(title, fields) {
  const counts = h("span", { class: "counts" });
  const summary = h("summary", {}, h("h2", {}, title), counts);
  const element = h("details", { class: "card section" }, summary, h("div", { class: "argument-list" }, fields.map((field) => field.element)));
  let opened = title === FIRST_SECTION || title === UNKNOWN_SECTION;
  // What a person opens stays open; what a search opens closes with it.
  summary.addEventListener("click", () => {
    opened = !element.open;
  });
  return { element, fields, counts, open: () => opened };
}
