// A new job: its task and arguments, checked by the server while they are written.

import { get, path, post } from "../api.js";
import { openDialog } from "../dialog.js";
import { fill, h, setText } from "../dom.js";
import { TASKS } from "../jobs/words.js";
import { argumentForm } from "../new/form.js";
import { same } from "../new/arguments.js";
import { jsonEditor } from "../new/json.js";
import { memberForm } from "../new/members.js";
import { startPreflight } from "../new/preflight.js";
import { report } from "../new/report.js";
import { OTHER_JOB, empty, presetOf, presetsOnOffer, startOf } from "../new/start.js";
import { suggestionLists } from "../new/suggestions.js";
import { tokenPreview } from "../tokens.js";
import { Problem, isAbort, problemBox } from "../problems.js";
import { go } from "../router.js";

const PREVIEWED = 3;
const WITH_RECORDS = ["finetune", "dpo", "kto", "quantize", "evaluate"];

export async function show(root, { query, signal }) {
  fill(root, h("h1", {}, "New job"), h("p", { class: "muted" }, "Loading …"));
  const [start, presets, hosts] = await Promise.all([startOf(query, signal), presetsOnOffer(signal), hostList(signal)]);
  const draft = { task: start.task, config: { ...start.config }, base: start.config, preset: start.preset };
  const sent = { text: "", key: "" };

  const suggestions = suggestionLists(signal);
  const form = argumentForm({ suggestions: suggestions.idFor, onChange: assign });
  const members = memberForm(changed);
  const editor = jsonEditor({ onChange: (config) => {
    draft.config = config;
    changed();
  } });
  const told = report({ goTo, hosts: () => hosts });
  const check = startPreflight(signal, (state) => {
    told.show(state);
    if (state.state !== "checking") tell(state.problem?.errors ?? [], state.answer?.warnings ?? []);
  });

  const preset = presetChoice(presets, draft.preset);
  const task = h("select", { id: "task" }, TASKS.map((name) => h("option", { value: name }, name)));
  const about = h("p", { class: "hint", id: "task-about" });
  task.setAttribute("aria-describedby", about.id);
  const asForm = h("button", { type: "button", "aria-pressed": "true", onclick: () => showAs(false) }, "Form");
  const asJson = h("button", { type: "button", "aria-pressed": "false", onclick: () => showAs(true) }, "JSON");
  const refusal = h("div", { role: "alert" });
  const submit = h("button", { type: "submit", class: "primary" }, "Submit job");
  const previewButton = h("button", { type: "button", onclick: preview }, "Show records");
  const previewed = h("div", { class: "previewed" });

  preset.addEventListener("change", usePreset);
  task.addEventListener("change", () => useTask(task.value));

  fill(root,
    h("form", { class: "new-job", novalidate: true, onsubmit: send },
      h("div", { class: "head" }, h("h1", {}, start.title)),
      h("div", { class: "columns" },
        h("div", { class: "page" },
          h("div", { class: "card start" },
            h("div", { class: "field" }, h("label", { for: "preset" }, "Starting point"), preset),
            h("div", { class: "field" }, h("label", { for: "task" }, "Task"), task, about),
            members.naming,
            h("div", { class: "row", role: "group", "aria-label": "Write the arguments as" }, asForm, asJson)),
          form.element, editor.element, members.element, suggestions.elements),
        h("aside", { class: "card preflight", "aria-label": "Check of the job" },
          h("h2", {}, "Check"), told.element, refusal,
          h("div", { class: "buttons" }, previewButton, submit), previewed))));
  if (start.members) members.show(start.members);
  await showTask();
  check(body(), 0);

  function assign(name, value) {
    if (value === undefined) delete draft.config[name];
    else draft.config[name] = value;
    changed();
  }

  function changed() {
    fill(refusal);
    check(body());
  }

  function body() {
    return { task: draft.task, config: draft.config, ...members.members() };
  }

  async function showTask() {
    const schema = await get(path`/schemas/${draft.task}`, {}, { signal });
    task.value = draft.task;
    setText(about, schema.description ?? "");
    previewButton.hidden = !WITH_RECORDS.includes(draft.task);
    draft.schema = schema;
    form.show(schema, draft.config, draft.base);
    editor.show(draft.config);
  }

  async function useTask(name) {
    draft.task = name;
    await showTask();
    changed();
  }

  async function usePreset() {
    const chosen = preset.value;
    if (!same(draft.config, draft.base) && !(await agreed())) {
      preset.value = draft.preset;
      return;
    }
    const from = chosen === OTHER_JOB ? start : chosen ? await presetOf(chosen, signal) : empty(draft.task);
    Object.assign(draft, { task: from.task, config: { ...from.config }, base: from.config, preset: chosen });
    await showTask();
    changed();
  }

  function agreed() {
    return openDialog({
      title: "Start anew?", body: [h("p", {}, "What you have changed in the arguments is lost.")], confirm: "Start anew", dangerous: true,
    });
  }

  function showAs(json) {
    if (json) editor.show(draft.config);
    else form.show(draft.schema, draft.config, draft.base);
    asForm.setAttribute("aria-pressed", String(!json));
    asJson.setAttribute("aria-pressed", String(json));
    form.element.hidden = json;
    editor.element.hidden = !json;
    check(body(), 0);
  }

  function tell(problems, warnings) {
    form.tell(byName(problems, "config"), byName(warnings, "config"));
    members.tell(memberProblems(problems));
  }

  function goTo([, part, name]) {
    if (part !== "config") members.focus(members.has(name) ? name : members.has(part) ? part : "device");
    else if (!editor.element.hidden) editor.focus();
    else form.focus(name);
  }

  async function send(event) {
    event.preventDefault();
    const text = JSON.stringify(body());
    // The same job sent again, because no answer came, is not made twice.
    if (text !== sent.text) Object.assign(sent, { text, key: freshKey() });
    submit.disabled = true;
    fill(refusal);
    try {
      const job = await post("/jobs", body(), { headers: { "Idempotency-Key": sent.key }, signal });
      go(`/jobs/${job.id}`);
    } catch (error) {
      if (isAbort(error)) return;
      if (error instanceof Problem && error.status === 422) {
        told.show({ state: "bad", problem: error, answer: null });
        tell(error.errors, []);
        if (error.errors.length) goTo(error.errors[0].loc);
      } else fill(refusal, problemBox(error));
    } finally {
      submit.disabled = false;
    }
  }

  async function preview() {
    previewButton.disabled = true;
    try {
      const answer = await post("/jobs/validate", body(), { query: { preview: PREVIEWED }, signal });
      fill(previewed, answer.preview ? tokenPreview(answer.preview)
        : h("p", { class: "note" }, answer.warnings.find(({ loc }) => loc[0] === "query")?.msg ?? "There is nothing to show."));
    } catch (error) {
      if (!isAbort(error)) fill(previewed, problemBox(error));
    } finally {
      previewButton.disabled = false;
    }
  }
}

function presetChoice(presets, chosen) {
  const families = [...new Set(presets.map(({ family }) => family))];
  const select = h("select", { id: "preset" }, h("option", { value: "" }, "nothing: the defaults"),
    chosen === OTHER_JOB && h("option", { value: OTHER_JOB }, "the other job"),
    families.map((family) => h("optgroup", { label: family }, presets
      .filter((each) => each.family === family)
      .map(({ name, task }) => h("option", { value: `${family}/${name}` }, `${family}/${name} (${task})`)))));
  select.value = chosen;
  return select;
}

/** What is wrong below a part of the body, lists by name. */
function byName(items, part) {
  const found = new Map();
  for (const { loc, ...item } of items) {
    if (loc[1] !== part) continue;
    const name = String(loc[2] ?? "");
    found.set(name, [...(found.get(name) ?? []), item]);
  }
  return found;
}

function memberProblems(items) {
  const found = new Map();
  for (const { loc, ...item } of items) {
    if (loc[1] === "config") continue;
    const name = loc[1] === "resources" ? String(loc[2] ?? "device") : String(loc[1]);
    found.set(name, [...(found.get(name) ?? []), item]);
  }
  return found;
}

async function hostList(signal) {
  return (await get("/hosts", {}, { signal })).items;
}

function freshKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
