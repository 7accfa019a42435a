// Modal questions.

import { h } from "./dom.js";
import { problemBox } from "./problems.js";

/**
 * Show a modal dialog until it is confirmed or left.
 *
 * @param {object} options
 * @param {string} options.title
 * @param {Array} options.body nodes and texts
 * @param {string} options.confirm what the button that agrees says
 * @param {string} [options.cancel] what the other one says
 * @param {boolean} [options.dangerous] whether what is agreed to cannot be undone
 * @param {() => Promise<unknown>} [options.action] runs on confirming; the dialog stays with what it throws
 * @returns {Promise<unknown>} true or the action's result once confirmed, null when left
 */
export function openDialog({ title, body, confirm, cancel = "Cancel", dangerous = false, action = null }) {
  const opener = document.activeElement;
  return new Promise((resolve) => {
    let result = null;
    const problems = h("div", { role: "alert" });
    const agree = h("button", { type: "submit", class: dangerous ? "danger" : "primary" }, confirm);
    const leave = h("button", { type: "button", onclick: () => dialog.close() }, cancel);
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title), body, problems, h("div", { class: "buttons" }, leave, agree));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!action) {
        result = true;
        dialog.close();
        return;
      }
      agree.disabled = true;
      try {
        result = (await action()) ?? true;
        dialog.close();
      } catch (error) {
        problems.replaceChildren(problemBox(error));
      } finally {
        agree.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
