// The form that uploads a data set.

import { fill, h, setText } from "../dom.js";
import { bytes, count } from "../format.js";
import { isAbort, problemBox } from "../problems.js";
import { packed, sendForm } from "./transfer.js";

export const KINDS = ["sft", "dpo", "kto"];
const SPLITS = { train: "Training records", dev: "Records to evaluate with", quant: "Records to calibrate with" };

/** @param {(dataset: object) => void} onStored called with what the server answers */
export function uploadForm({ signal, onStored }) {
  const name = h("input", { id: "upload-name", maxlength: 200, autocomplete: "off" });
  const kind = h("select", { id: "upload-kind" }, h("option", { value: "" }, "told by the first record"),
    KINDS.map((each) => h("option", { value: each }, each)));
  const files = Object.fromEntries(Object.keys(SPLITS).map((split) => [split, h("input", { id: `upload-${split}`, type: "file" })]));
  const pack = h("input", { type: "checkbox", id: "upload-pack" });
  const bar = h("progress", { class: "progress", max: 1, "aria-label": "Upload" });
  const far = h("span", { class: "muted number", role: "status" });
  const stop = h("button", { type: "button", onclick: () => running?.abort() }, "Stop");
  const sending = h("div", { class: "sending", hidden: true }, bar, far, stop);
  const result = h("div", { role: "alert" });
  const store = h("button", { type: "submit", class: "primary" }, "Upload");
  const validate = h("button", { type: "button", onclick: () => run("/datasets/validate", told) }, "Check only");
  let running = null;

  const element = h("form", { class: "card upload", "aria-labelledby": "upload-title", onsubmit: (event) => {
    event.preventDefault();
    run("/datasets", stored);
  } },
    h("h2", { id: "upload-title" }, "Upload a data set"),
    h("p", { class: "hint", id: "upload-hint" }, "JSON lines, as they are or packed by gzip; a file for each split. Every line is checked, and nothing is stored when one cannot be used."),
    h("div", { class: "upload-fields" },
      field(name, "Name"), field(kind, "Kind"),
      Object.entries(SPLITS).map(([split, title]) => field(files[split], `${title} (${split})`))),
    h("label", { class: "check" }, pack, "Pack by gzip before sending"),
    sending, result, h("div", { class: "buttons" }, validate, store));

  async function run(url, done) {
    const chosen = Object.entries(files).filter(([, input]) => input.files.length);
    if (!chosen.length) {
      fill(result, h("p", { class: "problem" }, "Choose a file first."));
      files.train.focus();
      return;
    }
    running = new AbortController();
    fill(result);
    showProgress(true);
    try {
      const either = AbortSignal.any([signal, running.signal]);
      done(await sendForm(url, await formOf(chosen), { signal: either, onProgress: tell }));
    } catch (error) {
      if (!isAbort(error)) fill(result, problemBox(error));
      else if (!signal.aborted) fill(result, h("p", { class: "note" }, "Stopped; nothing was stored."));
    } finally {
      showProgress(false);
    }
  }

  /** The form to send: the server wants names before files. */
  async function formOf(chosen) {
    const form = new FormData();
    if (name.value.trim()) form.append("name", name.value.trim());
    if (kind.value) form.append("kind", kind.value);
    for (const [split, input] of chosen) {
      if (pack.checked) setText(far, `Packing ${input.files[0].name} …`);
      const file = pack.checked ? await packed(input.files[0]) : input.files[0];
      form.append(split, file, file.name);
    }
    return form;
  }

  function showProgress(busy) {
    sending.hidden = !busy;
    store.disabled = validate.disabled = busy;
    bar.removeAttribute("value");
    setText(far, busy ? "Sending …" : "");
  }

  function tell(sent, total) {
    if (!total) return;
    bar.value = sent / total;
    setText(far, sent < total ? `${bytes(sent)} of ${bytes(total)}` : "All sent; the server checks the last lines …");
  }

  function stored(dataset) {
    element.reset();
    fill(result, h("p", { class: "good" }, "Stored: ", h("a", { href: `#/datasets/${dataset.id}` }, dataset.name ?? dataset.id), ` (${summary(dataset)}).`));
    onStored(dataset);
  }

  function told(check) {
    fill(result, h("p", { class: "good" }, `It can be stored: ${check.kind}, ${summary(check)}.`,
      check.known && [" The same content is there already: ", h("a", { href: `#/datasets/${check.known}` }, "show it"), "."]));
  }

  return element;
}

/** What the splits hold, in words. */
export function summary({ splits }) {
  return Object.entries(splits).map(([split, { examples }]) => `${count(examples)} ${split}`).join(", ");
}

function field(control, title) {
  return h("div", { class: "field" }, h("label", { for: control.id }, title), control);
}
