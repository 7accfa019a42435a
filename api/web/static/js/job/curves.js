// The curves of a job, drawn while it runs.

import { ChartGroup } from "../chart/group.js";
import { fill, h, setText } from "../dom.js";
import { bytes, count, number } from "../format.js";
import { follow } from "../live.js";
import { isAbort, problemBox } from "../problems.js";

const FIRST = [
  { title: "Loss", parts: [["train/loss", "train"], ["eval/eval_loss", "eval"]] },
  { title: "Learning rate", parts: [["train/learning_rate", "learning rate"]] },
  { title: "Tokens per second", parts: [["train/tokens_per_second", "tokens/s"]], format: count },
  { title: "Memory", parts: [["train/memory_bytes", "in use"], ["train/peak_memory_bytes", "peak"]], format: bytes },
  { title: "Gradient norm", parts: [["train/grad_norm", "norm"]] },
];
const COLORS = ["--c1", "--c2", "--c3", "--c4"];
const UNDRAWN = /^(train\/(epoch|tokens|ppl|step)|eval\/(epoch|eval_runtime|eval_.*_per_second|eval_ppl|step))$/;

/**
 * The panel of curves.
 *
 * @param {import("./metrics.js").Metrics} metrics what has been read of the job; kept while the panel is not seen
 */
export function curvesPanel(metrics) {
  const state = h("span", { class: "live hint" }, "reading…");
  const problem = h("div", { role: "alert" });
  const empty = h("p", { class: "empty", hidden: true }, "No numbers yet. The first ones come with the first logged step.");
  const drawn = new Map();
  let group = null;
  let zoom = null;

  const element = h("section", { class: "curves", "aria-label": "Curves" });

  async function start(signal) {
    group = new ChartGroup((range) => showDetail(range, signal));
    group.tools.append(state);
    fill(element, group.tools, problem, empty, group.element);
    signal.addEventListener("abort", () => group.destroy());
    try {
      await metrics.load(signal);
      show();
      await follow(metrics.base, {}, {
        signal,
        after: String(metrics.lastId),
        onItems: (items) => {
          metrics.add(items);
          show();
        },
        onLive: (live) => setText(state, live ? "live" : "connecting…"),
        onEnd: () => setText(state, ""),
      });
      setText(state, "");
    } catch (error) {
      if (!isAbort(error)) fill(problem, problemBox(error));
    }
  }

  function show() {
    for (const { title, parts, format } of chartsOf(metrics.series)) {
      const there = parts.filter(([name]) => metrics.series.has(name));
      const chart = group.chart(title, format ?? number);
      if (drawn.get(title) === there.length) chart.changed();
      else {
        drawn.set(title, there.length);
        chart.setSeries(there.map(([name, label]) => seriesOf(name, label, parts.findIndex(([each]) => each === name))));
      }
    }
    empty.hidden = drawn.size > 0;
    group.tools.hidden = drawn.size === 0;
  }

  function seriesOf(name, label, place) {
    const isEval = name.startsWith("eval/");
    return { name: label, color: COLORS[place], dots: isEval, dash: isEval || !place ? [] : [5, 4], ...metrics.series.get(name) };
  }

  async function showDetail(range, signal) {
    zoom?.abort();
    zoom = new AbortController();
    if (!range) return;
    try {
      if (await metrics.detail(range, AbortSignal.any([signal, zoom.signal]))) show();
    } catch (error) {
      if (!isAbort(error)) fill(problem, problemBox(error));
    }
  }

  return { element, start };
}

/** What there are curves of: those that all trainings have first, then what this one tells beside. */
function chartsOf(series) {
  const known = new Set(FIRST.flatMap(({ parts }) => parts.map(([name]) => name)));
  const first = FIRST.filter(({ parts }) => parts.some(([name]) => series.has(name)));
  const others = [...series.keys()].filter((name) => !known.has(name) && !UNDRAWN.test(name)).sort();
  return [...first, ...others.map((name) => ({ title: titleOf(name), parts: [[name, name.split("/")[0]]] }))];
}

function titleOf(name) {
  const [, ...rest] = name.split("/");
  const text = rest.join("/").replace(/^eval_/, "eval ").replaceAll("_", " ");
  return text[0].toUpperCase() + text.slice(1);
}
