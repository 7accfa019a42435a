// The API key: asked for when the server wants one, kept for this tab alone.

import { h } from "./dom.js";
import { openDialog } from "./dialog.js";

const NAME = "regatta.key";
let asking = null;
let declined = false;
let unstored = "";

/** The key in use; empty without one. */
export function currentKey() {
  try {
    return sessionStorage.getItem(NAME) ?? unstored;
  } catch {
    return unstored;
  }
}

/** Use a key from now on; empty: none. */
export function useKey(key) {
  declined = false;
  unstored = key;
  try {
    if (key) sessionStorage.setItem(NAME, key);
    else sessionStorage.removeItem(NAME);
  } catch {
    // Without storage the key lasts as long as the page.
  }
  document.dispatchEvent(new CustomEvent("regatta:key"));
}

/** What a request has to carry. */
export function authorization() {
  const key = currentKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** After a question was left, nothing asks again by itself until another page is shown. */
export function mayAskAgain() {
  declined = false;
}

/**
 * Ask the person for a key; requests that fail at the same time share the question.
 *
 * @param {string} why what the server said
 * @returns {Promise<boolean>} whether there is a new key
 */
export function askForKey(why) {
  if (declined) return Promise.resolve(false);
  asking ??= ask(why).finally(() => {
    asking = null;
  });
  return asking;
}

async function ask(why) {
  const input = h("input", {
    id: "key-text", type: "password", autocomplete: "off", spellcheck: "false", required: true, autofocus: true,
  });
  const answer = await openDialog({
    title: "API key",
    body: [
      h("p", {}, why),
      h("label", { for: "key-text" }, "Key"),
      input,
      h("p", { class: "hint" }, "It is kept in this tab until the tab is closed, and sent to this server alone."),
    ],
    confirm: "Use key",
  });
  const key = input.value.trim();
  declined = !answer || !key;
  if (declined) return false;
  useKey(key);
  return true;
}
