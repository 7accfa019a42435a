// Sending files with progress, which fetch cannot tell.

import { askForKey, authorization } from "../auth.js";
import { Problem } from "../problems.js";

/**
 * POST a form; asks for a key at a 401 and sends it again.
 *
 * @param {string} url
 * @param {FormData} form
 * @param {object} options
 * @param {AbortSignal} options.signal
 * @param {(sent: number, total: number) => void} options.onProgress bytes; equal once all is sent
 * @throws {Problem}
 */
export async function sendForm(url, form, options) {
  for (;;) {
    try {
      return await once(url, form, options);
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 401 || !(await askForKey(error.message))) throw error;
    }
  }
}

function once(url, form, { signal, onProgress }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url);
    request.setRequestHeader("Accept", "application/json");
    for (const [name, value] of Object.entries(authorization())) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress(loaded, total));
    request.addEventListener("load", () => {
      const document = parsed(request.responseText);
      if (request.status < 300) resolve(document);
      else reject(new Problem(request.status, document ?? { detail: `The server answered ${request.status}.` }));
    });
    request.addEventListener("error", () => reject(new Problem(0, { title: "No connection", detail: "The upload was cut." })));
    request.addEventListener("abort", () => reject(new DOMException("given up", "AbortError")));
    if (signal.aborted) request.abort();
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The file packed by gzip, as a file of its own; one that is packed already stays as it is. */
export async function packed(file) {
  if (file.name.endsWith(".gz")) return file;
  const stream = file.stream().pipeThrough(new CompressionStream("gzip"));
  return new File([await new Response(stream).blob()], `${file.name}.gz`);
}
