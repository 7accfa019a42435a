// The log of a job: its last lines at once, then what comes; earlier ones when they are wanted.

import { get, path, send } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { moment, number } from "../format.js";
import { follow } from "../live.js";
import { isAbort, problemBox } from "../problems.js";
import { cutAt, Lines } from "./lines.js";
import { LineList } from "./list.js";

const TAIL = 10_000;
const PAGE = 5000;
const TYPING_MS = 60;

export function logsPanel(jobId) {
  const base = path`/jobs/${jobId}/logs`;
  const lines = new Lines();
  let signal = null;

  const search = h("input", { type: "search", id: "log-search", placeholder: "Text in lines" });
  const rank = h("select", { id: "log-rank" }, h("option", { value: "" }, "all"));
  const following = h("input", { type: "checkbox", checked: true });
  const found = h("span", { class: "hint number", role: "status" });
  const live = h("span", { class: "hint" });
  const problem = h("div", { role: "alert" });
  const earlier = h("button", { type: "button", hidden: true, onclick: () => guarded(loadEarlier) }, "Load earlier lines");
  const save = h("button", { type: "button", onclick: () => guarded(download) }, "Download");
  const list = new LineList({
    label: "Log", draw: (line) => drawn(line, search.value.trim(), lines.ranks.size > 1),
    onScroll: (atEnd) => {
      following.checked = atEnd;
    },
  });

  const element = h("section", { class: "logs", "aria-label": "Log" },
    h("div", { class: "log-tools" },
      h("div", { class: "field" }, h("label", { for: "log-search" }, "Search"), search),
      h("div", { class: "field" }, h("label", { for: "log-rank" }, "Rank"), rank),
      h("label", { class: "check" }, following, "Follow"), earlier, save, found, live),
    problem, list.element);

  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(narrow, TYPING_MS);
  });
  rank.addEventListener("change", narrow);
  following.addEventListener("change", () => {
    if (following.checked) list.toEnd();
  });

  function narrow() {
    lines.find(search.value.trim(), rank.value === "" ? null : Number(rank.value));
    show();
  }

  function show() {
    list.show(lines.matching, following.checked);
    const all = number(lines.all.length);
    setText(found, lines.narrowed ? `${number(lines.matching.length)} of ${all} lines` : `${all} lines`);
    earlier.hidden = !lines.all.length || lines.all[0].cursor === "1-1";
    if (rank.options.length !== lines.ranks.size + 1) {
      const chosen = rank.value;
      fill(rank, h("option", { value: "" }, "all"), [...lines.ranks].sort((a, b) => a - b).map((each) => h("option", { value: each }, each)));
      rank.value = chosen;
    }
  }

  async function start(ends) {
    signal = ends;
    signal.addEventListener("abort", () => list.destroy());
    show();
    await guarded(() => follow(base, { tail: TAIL }, {
      signal,
      onItems: (items) => {
        lines.append(items);
        show();
      },
      onLive: (open) => setText(live, open ? "live" : "connecting…"),
      onEnd: () => setText(live, "complete"),
    }));
  }

  async function loadEarlier() {
    const first = lines.all[0].cursor;
    earlier.disabled = true;
    const before = [];
    let after = null;
    try {
      for (;;) {
        const page = await get(base, { after: after ?? "0-0", limit: PAGE }, { signal });
        const end = page.items.findIndex(({ cursor }) => cursor === first);
        before.push(...(end < 0 ? page.items : page.items.slice(0, end)));
        setText(live, `${number(before.length)} earlier lines read`);
        if (end >= 0 || page.next_cursor === null) break;
        after = page.next_cursor;
      }
    } finally {
      earlier.disabled = false;
    }
    const seen = lines.matching.length;
    lines.prepend(before);
    show();
    if (!following.checked) list.shift(lines.matching.length - seen);
    setText(live, "");
  }

  async function download() {
    const response = await send("GET", base, { headers: { Accept: "text/plain" }, signal });
    const url = URL.createObjectURL(await response.blob());
    h("a", { href: url, download: `${jobId}.log` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  async function guarded(work) {
    try {
      fill(problem);
      await work();
    } catch (error) {
      if (!isAbort(error)) fill(problem, problemBox(error));
    }
  }

  return { element, start };
}

function drawn({ cursor, time, rank, line }, text, withRank) {
  const kind = /\berror:/i.test(line) ? "bad" : /\bwarning:/i.test(line) ? "odd" : "";
  return h("div", { class: `line ${kind}`, title: moment(time) },
    h("span", { class: "line-number" }, cursor), withRank && h("span", { class: "line-rank" }, `rank ${rank}`),
    h("span", {}, cutAt(line, text).map((part, index) => (index % 2 ? h("mark", {}, part) : part))));
}
