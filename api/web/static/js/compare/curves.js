// The curves of several jobs over each other.

import { get } from "../api.js";
import { ChartGroup } from "../chart/group.js";
import { h } from "../dom.js";
import { count, number } from "../format.js";
import { Metrics } from "../job/metrics.js";
import { isOver, titleOf } from "../jobs/words.js";

const CHARTS = [
  { title: "Loss", name: "train/loss" },
  { title: "Loss in evaluation", name: "eval/eval_loss", dots: true },
  { title: "Learning rate", name: "train/learning_rate" },
  { title: "Gradient norm", name: "train/grad_norm" },
  { title: "Tokens per second", name: "train/tokens_per_second", format: count },
];
const PAGE = 5000;

/** The colour of a job's curves, by its place: the name of a CSS variable. */
export function colorOf(place) {
  return `--c${(place % 8) + 1}`;
}

/** A panel of charts with a curve of each job: `{element, load(signal)}`; `load` again for what is new. */
export function curvePanel(jobs, signal) {
  const group = new ChartGroup();
  const empty = h("p", { class: "empty" }, "No numbers yet.");
  const tracks = jobs.map((job) => ({ job, metrics: new Metrics(job.id), read: false, over: false }));
  const drawn = new Map();
  signal.addEventListener("abort", () => group.destroy());
  const element = h("section", { "aria-label": "Curves", class: "page" }, group.tools, empty, group.element);
  return { element, load };

  /** Read what is new of the jobs that are not over; at first of all. */
  async function load(stop) {
    await Promise.all(tracks.map(async (track) => {
      if (!track.read) await track.metrics.load(stop);
      else if (!track.over) await more(track.metrics, stop);
      track.over = isOver(track.job.status);
      track.read = true;
    }));
    show();
  }

  function show() {
    for (const { title, name, format, dots } of CHARTS) {
      const there = tracks.map(({ metrics }, place) => ({ place, series: metrics.series.get(name) })).filter(({ series }) => series);
      if (!there.length) continue;
      const chart = group.chart(title, format ?? number);
      if (drawn.get(title) === there.length) chart.changed();
      else {
        drawn.set(title, there.length);
        chart.setSeries(there.map(({ place, series }) => ({ name: titleOf(jobs[place]), color: colorOf(place), dots: Boolean(dots), ...series })));
      }
    }
    empty.hidden = drawn.size > 0;
    group.tools.hidden = drawn.size === 0;
  }
}

async function more(metrics, signal) {
  let page;
  do {
    page = await get(metrics.base, { after: metrics.lastId, limit: PAGE }, { signal });
    metrics.add(page.items);
  } while (page.items.length === PAGE);
}
