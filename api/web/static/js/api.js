// Calls of the API: JSON in and out, problems as exceptions, a key where the server wants one.

import { askForKey, authorization } from "./auth.js";
import { Problem, isAbort } from "./problems.js";

/** A path with its variable parts escaped: path`/jobs/${id}`. */
export function path(texts, ...values) {
  return String.raw({ raw: texts }, ...values.map(encodeURIComponent));
}

/** An address with its query; null, undefined and "" are left out, lists are repeated. */
export function address(base, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") words.append(name, each);
    }
  }
  const text = words.toString();
  return text ? `${base}?${text}` : base;
}

/**
 * Send a request and give the response, whatever it holds. Asks for a key at a 401 and sends it again.
 *
 * @throws {Problem} for every answer that is not 2xx, and when there is none
 */
export async function send(method, url, { headers = {}, body, signal } = {}) {
  for (;;) {
    const response = await reach(method, url, { headers: { ...headers, ...authorization() }, body, signal });
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status !== 401 || !(await askForKey(problem.message))) throw problem;
  }
}

async function reach(method, url, options) {
  let response;
  try {
    response = await fetch(url, { method, cache: "no-cache", ...options });
  } catch (error) {
    if (isAbort(error)) throw error;
    tellConnection(false);
    throw new Problem(0, { title: "No connection", detail: "The server does not answer." });
  }
  tellConnection(true);
  return response;
}

async function problemOf(response) {
  let document = {};
  try {
    document = await response.json();
  } catch {
    document.detail = `The server answered ${response.status} ${response.statusText}.`;
  }
  const problem = new Problem(response.status, document);
  const wait = Number(response.headers.get("Retry-After"));
  problem.retryAfter = wait > 0 ? wait : null;
  return problem;
}

let connected = true;

function tellConnection(now) {
  if (now === connected) return;
  connected = now;
  document.dispatchEvent(new CustomEvent("regatta:connection", { detail: now }));
}

async function json(method, url, { value, ...options } = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (value !== undefined) headers["Content-Type"] = "application/json";
  const body = value === undefined ? options.body : JSON.stringify(value);
  const response = await send(method, url, { ...options, headers, body });
  return response.status === 204 ? null : response.json();
}

/** GET a JSON document. */
export function get(base, query = {}, options = {}) {
  return json("GET", address(base, query), options);
}

/** POST a value as JSON; without a value nothing is sent. */
export function post(base, value, { query, ...options } = {}) {
  return json("POST", address(base, query), { ...options, value });
}

/** POST a FormData or a Blob as it is. */
export function upload(base, body, { query, ...options } = {}) {
  return json("POST", address(base, query), { ...options, body });
}

export function patch(base, value, options = {}) {
  return json("PATCH", base, { ...options, value });
}

export function remove(base, options = {}) {
  return json("DELETE", base, options);
}

/** All items of a list, page by page, at most `most`. */
export async function all(base, query = {}, { most = 10_000, ...options } = {}) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(base, { ...query, cursor }, options);
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null && items.length < most);
  return items;
}
