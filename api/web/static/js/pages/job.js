// The page of one job.

import { all, get, path } from "../api.js";
import { announce } from "../announce.js";
import { fill, h } from "../dom.js";
import { jobActions } from "../job/actions.js";
import { checkpointsPanel } from "../job/checkpoints.js";
import { configPanel } from "../job/config.js";
import { curvesPanel } from "../job/curves.js";
import { eventsPanel } from "../job/events.js";
import { jobHead } from "../job/head.js";
import { Metrics } from "../job/metrics.js";
import { isOver, titleOf } from "../jobs/words.js";
import { repeat } from "../live.js";
import { logsPanel } from "../logs/panel.js";
import { isAbort, problemBox } from "../problems.js";
import { keepInAddress, setTitle } from "../router.js";
import { tabs } from "../tabs.js";

const BUSY_MS = 2000;
const QUIET_MS = 10_000;

export async function show(root, { id, query, signal }) {
  const address = path`/jobs/${id}`;
  let [job, reasons] = await Promise.all([get(address, {}, { signal }), all("/reasons", {}, { signal })]);
  const head = jobHead(new Map(reasons.map((each) => [each.reason, each])));
  const problem = h("div", { role: "alert" });
  const over = () => isOver(job.status);
  const showActions = jobActions(head.actions, () => job, () => state.now());
  let metrics = new Metrics(id);
  const panels = tabs([
    { name: "curves", title: "Curves", make: () => curvesPanel(metrics) },
    { name: "logs", title: "Log", make: () => logsPanel(id) },
    { name: "events", title: "Events", make: () => eventsPanel(id, over) },
    { name: "config", title: "Config", make: () => configPanel(() => job) },
    { name: "checkpoints", title: "Checkpoints", make: () => checkpointsPanel(id, over) },
  ], { label: "About the job", chosen: query.get("tab"), signal, onChoose: (tab) => keepInAddress({ tab }) });
  fill(root, head.element, problem, panels.element);
  showJob();

  function showJob() {
    setTitle(`${titleOf(job)} (${job.status})`);
    head.show(job);
    showActions(job);
  }

  const state = repeat(async (stop) => {
    const before = job.status;
    job = await get(address, {}, { signal: stop });
    fill(problem);
    showJob();
    if (job.status !== before) announce(`${titleOf(job)} is ${job.status}. ${job.message}`);
    if (isOver(before) && !over()) {
      metrics = new Metrics(id); // a retry may begin from scratch
      panels.again(); // what it follows had ended
    }
  }, { signal, interval: () => (over() ? QUIET_MS : BUSY_MS), onError: showError });

  function showError(error) {
    if (!isAbort(error)) fill(problem, problemBox(error));
  }
}
