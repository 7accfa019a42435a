// What can be done with a job: each button opens a dialog that sends one call.

import { patch, path, post, remove } from "../api.js";
import { announce } from "../announce.js";
import { openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { isOver, titleOf } from "../jobs/words.js";
import { Problem } from "../problems.js";
import { go } from "../router.js";

/**
 * The buttons of a job.
 *
 * @param {Element} parent
 * @param {() => object} current the job as it is now
 * @param {() => void} refresh asks for it anew
 * @returns {(job: object) => void} shows which of them can be used
 */
export function jobActions(parent, current, refresh) {
  const button = (text, act, kind = "") => {
    const element = h("button", { type: "button", class: kind, onclick: async () => {
      const done = await act(current());
      if (done) refresh();
    } }, text);
    parent.append(element);
    return element;
  };
  const retry = button("Retry…", retryDialog, "primary");
  const cancel = button("Cancel…", cancelDialog);
  button("Clone…", openClone);
  button("Edit…", editDialog);
  const forget = button("Delete…", deleteDialog, "danger");

  return (job) => {
    const over = isOver(job.status);
    show(retry, job.status === "failed" || job.status === "cancelled");
    show(cancel, !over && job.status !== "stopping");
    show(forget, over);
  };
}

/** Hide a button that does not apply; the focus must not be lost with it. */
function show(button, wanted) {
  if (!wanted && document.activeElement === button) document.getElementById("main").focus();
  button.hidden = !wanted;
}

function retryDialog(job) {
  const changes = changesField("retry-config");
  const scratch = h("input", { id: "retry-scratch", type: "checkbox" });
  const force = h("input", { id: "retry-force", type: "checkbox" });
  return openDialog({
    title: `Retry ${titleOf(job)}`,
    body: [
      h("p", { class: "hint" }, "It goes on from its last checkpoint."),
      changes.field,
      h("label", { class: "check" }, scratch, "From scratch: forget its checkpoints and metrics"),
      h("label", { class: "check" }, force, "Queue it even if it needs more memory than any known device"),
    ],
    confirm: "Retry",
    action: async () => {
      await post(path`/jobs/${job.id}/retry`, {
        ...changes.value(), ...(scratch.checked && { from_scratch: true }), ...(force.checked && { force: true }),
      });
      announce("The job is queued again");
    },
  });
}

/** A new job's page, filled with what this one was asked for. */
function openClone(job) {
  go("/new", { clone: job.id });
  return false;
}

function cancelDialog(job) {
  const text = job.status === "queued" ? "It has not started; it is stopped at once." : "It saves a checkpoint first, and can be retried from there.";
  return openDialog({
    title: `Cancel ${titleOf(job)}?`, body: [h("p", {}, text)], confirm: "Cancel the job", cancel: "Let it go on", dangerous: true,
    action: () => post(path`/jobs/${job.id}/cancel`),
  });
}

async function deleteDialog(job) {
  const gone = await openDialog({
    title: `Delete ${titleOf(job)}?`,
    body: [h("p", {}, "Its numbers, logs, checkpoints and result are gone for good. What has happened to it stays in the history of events.")],
    confirm: "Delete for good", dangerous: true,
    action: () => remove(path`/jobs/${job.id}`),
  });
  if (gone) go("/jobs");
  return false;
}

function editDialog(job) {
  const name = h("input", { id: "edit-name", value: job.name ?? "", maxlength: 200 });
  const waits = job.status === "queued";
  const priority = h("input", { id: "edit-priority", type: "number", min: -1000, max: 1000, step: 1, value: job.priority, disabled: !waits });
  const labels = h("textarea", { id: "edit-labels", rows: 5, spellcheck: "false" });
  labels.value = Object.entries(job.labels).map(([key, value]) => `${key}: ${value}`).join("\n");
  return openDialog({
    title: `Edit ${titleOf(job)}`,
    body: [
      h("div", { class: "field" }, h("label", { for: "edit-name" }, "Name"), name),
      h("div", { class: "field" }, h("label", { for: "edit-priority" }, "Priority"), priority,
        h("span", { class: "hint" }, waits ? "-1000 to 1000; higher runs first." : "Only a queued job's priority can be changed.")),
      h("div", { class: "field" }, h("label", { for: "edit-labels" }, "Labels"), labels, h("span", { class: "hint" }, "One a line, as key: value.")),
    ],
    confirm: "Save",
    action: () => patch(path`/jobs/${job.id}`, {
      name: name.value.trim() || null, labels: labelChanges(job.labels, labels.value),
      ...(waits && Number(priority.value) !== job.priority && { priority: Number(priority.value) }),
    }),
  });
}

/** What PATCH takes: the labels that are there, and null for those that are there no more. */
function labelChanges(before, text) {
  const after = Object.fromEntries(Object.keys(before).map((key) => [key, null]));
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const colon = line.indexOf(":");
    if (colon < 1) throw notSent(`“${line.trim()}” is not a label; write key: value.`);
    after[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return after;
}

function changesField(id) {
  const text = h("textarea", { id, rows: 4, spellcheck: "false", placeholder: '{"learning_rate": 0.0001}' });
  return {
    field: h("div", { class: "field" }, h("label", { for: id }, "Changes of the config"), text,
      h("span", { class: "hint" }, "Arguments with their new values, as JSON; null: the default. Empty: no change.")),
    value: () => (text.value.trim() ? { config: parsed(text.value) } : {}),
  };
}

/** What is told of an entry that cannot be sent. */
function notSent(detail) {
  return new Problem(0, { title: "This cannot be sent", detail });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw notSent(`The changes are not JSON: ${error.message}`);
  }
}
