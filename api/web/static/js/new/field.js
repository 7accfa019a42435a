// One argument of the form: its control, what it means, and what is wrong with it.

import { fill, h, setOrRemove, setText } from "../dom.js";
import { initialText, same, textOf, valueOf } from "./arguments.js";

/**
 * @param {object} argument as `argumentsOf` gives it
 * @param {object} options
 * @param {(name: string, value: unknown) => void} options.onChange undefined: not set
 * @param {string|null} options.suggestions id of a datalist
 */
export function argumentField(argument, { onChange, suggestions }) {
  const { name } = argument;
  const id = `argument-${name}`;
  const control = controlOf(argument, id, suggestions);
  const changed = h("span", { class: "tag changed", hidden: true }, "changed");
  const reset = h("button", { type: "button", class: "quiet small", hidden: true, "aria-label": `Set ${name} back` }, "Set back");
  const hint = h("p", { class: "hint", id: `${id}-hint` }, hintOf(argument));
  const problem = h("div", { class: "wrong", id: `${id}-problem` });
  const warning = h("div", { class: "warned", id: `${id}-warning` });
  const element = h("div", { class: "argument", "data-name": name },
    h("div", { class: "what" }, h("label", { for: id }, h("code", {}, name)), changed, reset),
    h("div", { class: "value" }, control),
    hint, problem, warning);
  const text = `${name} ${argument.description}`.toLowerCase();
  let base;

  control.addEventListener(control.tagName === "SELECT" ? "change" : "input", () => {
    const value = valueOf(argument, control.value);
    mark(value);
    onChange(name, value);
  });
  reset.addEventListener("click", () => {
    write(control, base);
    mark(base);
    onChange(name, base);
    control.focus();
  });

  function mark(value) {
    const differs = !same(value, base);
    changed.hidden = reset.hidden = !differs;
    element.classList.toggle("set", value !== undefined);
  }

  return {
    argument, element,
    focus: () => control.focus(),
    matches: (words) => words.every((word) => text.includes(word)),
    /** Show a value, and what it was at first. */
    show(value, first) {
      base = first;
      write(control, value);
      mark(value);
    },
    differs: () => !changed.hidden,
    isSet: () => element.classList.contains("set"),
    hasProblem: () => control.getAttribute("aria-invalid") === "true",
    /** Show what is wrong and what is doubtful: lists of `{msg, hint}`. */
    tell(problems, warnings) {
      fill(problem, problems.map(sentence));
      fill(warning, warnings.map(sentence));
      setOrRemove(control, "aria-invalid", problems.length ? "true" : null);
      const notes = [hint.id, problems.length && problem.id, warnings.length && warning.id];
      setOrRemove(control, "aria-describedby", notes.filter(Boolean).join(" "));
    },
  };
}

function sentence({ msg, hint }) {
  return h("p", {}, msg, hint && [" ", h("span", { class: "hint" }, hint)]);
}

function controlOf(argument, id, suggestions) {
  const { kind, options } = argument;
  if (kind === "boolean" || kind === "choice") {
    const choices = kind === "boolean" ? ["true", "false"] : options;
    return h("select", { id }, h("option", { value: "" }, `default (${initialText(argument)})`),
      choices.map((choice) => h("option", { value: choice }, choice)));
  }
  const inputmode = { integer: "numeric", number: "decimal" }[kind];
  return h("input", {
    id, inputmode, list: suggestions, placeholder: initialText(argument), autocomplete: "off", spellcheck: "false",
  });
}

function write(control, value) {
  const text = textOf(value);
  if (control.tagName === "SELECT" && ![...control.options].some((option) => option.value === text)) {
    control.append(h("option", { value: text }, text)); // what the file says, though it is none of the choices
  }
  if (control.value !== text) control.value = text;
}

function hintOf({ description, standing, reason }) {
  if (standing === "supported") return description;
  const what = standing === "refused" ? "Refused" : "No effect";
  return [description, " ", h("strong", {}, `${what}: ${reason}.`)];
}

/** What a section of the form says beside its title. */
export function countText(element, fields) {
  const set = fields.filter((field) => field.isSet()).length;
  const wrong = fields.filter((field) => field.hasProblem()).length;
  setText(element, [wrong && `${wrong} wrong`, set && `${set} set`].filter(Boolean).join(", "));
  element.classList.toggle("wrong", wrong > 0);
}
