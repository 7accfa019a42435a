// What went wrong, as the API tells it (RFC 9457).

import { h } from "./dom.js";

/** An answer that is not 2xx, or none at all (`status` 0). */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {object} document the problem details
   */
  constructor(status, document) {
    super(document.detail || document.title || `The server answered ${status}.`);
    this.name = "Problem";
    this.status = status;
    this.type = String(document.type ?? "").split(":").pop();
    this.title = document.title || "Something went wrong";
    this.errors = Array.isArray(document.errors) ? document.errors : [];
    this.document = document;
    this.retryAfter = null;
  }
}

/** Whether a request was given up by ourselves, which nobody needs to hear of. */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** A box that tells an error: each place with what is wrong and what to do. */
export function problemBox(error) {
  const title = error instanceof Problem ? error.title : "The dashboard failed";
  const items = error instanceof Problem ? error.errors : [];
  return h("div", { class: "problem" },
    h("p", {}, h("strong", {}, title)),
    items.length ? h("ul", {}, items.map(problemItem)) : h("p", {}, error.message),
    error.document?.request_id && h("p", { class: "hint" }, `Request ${error.document.request_id}`));
}

function problemItem({ loc, msg, hint }) {
  const place = placeOf(loc);
  return h("li", {}, place && [h("code", {}, place), " "], msg, hint && h("span", { class: "hint" }, ` ${hint}`));
}

/** A problem's place in words, without the part of the request that it is in: `config.learning_rate`. */
export function placeOf(loc) {
  return (loc ?? []).slice(1).join(".");
}
