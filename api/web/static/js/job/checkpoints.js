// The checkpoints that a job keeps, and its result.

import { all, get, path } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, moment, number, words } from "../format.js";
import { repeat } from "../live.js";
import { Problem, problemBox } from "../problems.js";
import { downloadLink } from "./download.js";

const BUSY_MS = 5000;

export function checkpointsPanel(jobId, isOver) {
  const problem = h("div", { role: "alert" });
  const list = h("div", { class: "checkpoints" });
  const element = h("section", { "aria-label": "Checkpoints" }, problem, list);
  let shown = "";

  function start(signal) {
    repeat(async (stop) => {
      const [checkpoints, result] = await Promise.all([
        all(path`/jobs/${jobId}/checkpoints`, { limit: 200 }, { signal: stop }), resultOf(jobId, stop),
      ]);
      fill(problem);
      const text = JSON.stringify([checkpoints, result]);
      if (text === shown) return;
      shown = text;
      const items = [...(result ? [result] : []), ...checkpoints.reverse()];
      fill(list, items.length ? items.map((item) => card(item, item === result)) : h("p", { class: "empty" }, "No checkpoint yet."));
    }, { signal, interval: () => (isOver() ? null : BUSY_MS), onError: (error) => fill(problem, problemBox(error)) });
  }

  return { element, start };
}

async function resultOf(jobId, signal) {
  try {
    return await get(path`/jobs/${jobId}/result`, {}, { signal });
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

function card(item, isResult) {
  const title = isResult ? "Result" : item.name;
  const metrics = Object.entries(item.metrics).filter(([, value]) => typeof value === "number");
  return h("article", { class: "card checkpoint" },
    h("div", { class: "head" },
      h("h3", {}, title, item.best && h("span", { class: "tag" }, "best")),
      h("span", { class: "hint number" }, `${item.step === null ? "" : `step ${number(item.step)} · `}${bytes(item.bytes)} · ${moment(item.created_at)}`),
      downloadLink(item.links.archive, `${isResult ? "result" : item.name}.tar`, "Download all (tar)", `Download ${title} as a tar archive`)),
    metrics.length > 0 && h("dl", { class: "facts columns" }, metrics.map(([name, value]) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, name.endsWith("_bytes") ? bytes(value) : number(value))))),
    h("details", {}, h("summary", {}, item.files.length === 1 ? "1 file" : `${item.files.length} files`), fileTable(item, title)));
}

function fileTable(item, title) {
  return h("table", {}, h("caption", { class: "unseen" }, `Files of ${title}`),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "File"), h("th", { scope: "col", class: "number" }, "Size"), h("th", { scope: "col" }, "SHA-256"))),
    h("tbody", {}, item.files.map((file) => h("tr", {},
      h("th", { scope: "row", class: "break" }, downloadLink(file.url, file.path.split("/").pop(), file.path)),
      h("td", { class: "number" }, bytes(file.bytes)), h("td", { class: "mono break" }, file.sha256)))));
}
