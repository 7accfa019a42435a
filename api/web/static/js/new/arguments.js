// The arguments of a task, as its JSON Schema tells them, and their values as text.

/** What most jobs set comes first, under a title of its own. */
const FIRST = [
  "model_name_or_path", "lora_path", "dataset_name_or_path", "train_dataset_path", "dev_dataset_path", "output_dir",
  "learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps",
  "max_length", "max_seq_len", "lora", "lora_rank",
];
export const FIRST_SECTION = "Essentials";
export const UNKNOWN_SECTION = "Not arguments of this task";

/**
 * The arguments in the order of the form.
 *
 * @param {object} schema of GET /schemas/{task}
 * @returns {Array<{name, section, kind, options, initial, required, description, standing, reason}>} `kind` is boolean,
 *   choice, integer, number, text, list or json
 */
export function argumentsOf(schema) {
  const required = new Set(schema.required ?? []);
  const found = Object.entries(schema.properties).map(([name, entry]) => argument(name, entry, required.has(name)));
  const place = ({ name }) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return found.sort((one, other) => place(one) - place(other));
}

function argument(name, entry, required) {
  const type = entry.anyOf?.find((each) => each.type !== "null") ?? entry;
  const support = entry["x-regatta-support"] ?? { standing: "supported" };
  return {
    name, required,
    section: FIRST.includes(name) ? FIRST_SECTION : entry["x-regatta-section"],
    kind: kindOf(type),
    options: type.enum ?? [],
    initial: entry.default,
    description: entry.description ?? "",
    standing: support.standing,
    reason: support.reason ?? "",
  };
}

function kindOf({ type, enum: options, items }) {
  if (options) return "choice";
  if (type === "array") return items?.type === "string" ? "list" : "json";
  if (type === "object") return "json";
  return { boolean: "boolean", integer: "integer", number: "number" }[type] ?? "text";
}

/** An argument that the schema does not know, but the config has. */
export function unknownArgument(name) {
  return {
    name, required: false, section: UNKNOWN_SECTION, kind: "json", options: [], initial: undefined,
    description: "The task has no such argument.", standing: "supported", reason: "",
  };
}

/** What the argument is when it is not set, in words. */
export function initialText({ required, initial }) {
  if (required) return "required";
  return initial === null || initial === undefined ? "not set" : textOf(initial);
}

/** A value as it stands in a field. */
export function textOf(value) {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/**
 * The value that a field's text says; undefined for an empty one. What cannot be read stays text, and the server says
 * what is wrong with it.
 */
export function valueOf({ kind }, text) {
  const trimmed = text.trim();
  if (!trimmed) return undefined;
  if (kind === "boolean") return { true: true, false: false }[trimmed] ?? trimmed;
  if (kind === "integer") return /^-?\d{1,15}$/.test(trimmed) ? Number(trimmed) : trimmed;
  if (kind === "number") return Number.isFinite(Number(trimmed)) ? Number(trimmed) : trimmed;
  if (kind === "list" && !/^[["{]/.test(trimmed)) return trimmed.split(",").map((word) => word.trim());
  if (kind === "list" || kind === "json") return parsed(trimmed);
  return trimmed;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Whether two values of a config are the same. */
export function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
