// The top of a job's page: what it is, where it stands, and why.

import { fill, h, setOrRemove, setText } from "../dom.js";
import { between, count, duration, moment, number, words } from "../format.js";
import { faultWords, isOver, progressWords, queueWords, shareOf, titleOf } from "../jobs/words.js";
import { link } from "../router.js";

const JOB_ID = /([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/;

/**
 * @param {Map<string, object>} reasons what GET /reasons says, by reason
 * @returns {{element: Element, show: (job: object) => void}}
 */
export function jobHead(reasons) {
  const title = h("h1", { class: "break" });
  const id = h("span", { class: "mono break" });
  const status = h("span", { class: "status" });
  const bar = h("progress", { class: "progress", max: 1, "aria-label": "Progress" });
  const far = h("span", { class: "number" });
  const message = h("p", { class: "break" });
  const why = h("div", { class: "why" });
  const facts = h("dl", { class: "facts columns" });
  const labels = h("div", { class: "tags" });
  const actions = h("div", { class: "row" });
  let shown = "";

  const element = h("div", { class: "job-head" },
    h("nav", { "aria-label": "Where this is", class: "hint" }, h("a", { href: "#/jobs" }, "Jobs"), " / ", id),
    h("div", { class: "head" }, title, actions),
    h("section", { class: "card state", "aria-label": "State" },
      h("div", { class: "row" }, status, far), bar, message, why, facts, labels));

  function show(job) {
    setText(title, titleOf(job));
    setText(id, job.id);
    setText(status, job.status);
    setOrRemove(status, "data-status", job.status);
    showProgress(job);
    showMessage(job.status === "queued" ? queueWords(job.queue) : job.message);
    const text = JSON.stringify([job.status, job.reason, job.evidence, job.warnings, job.labels]);
    if (text !== shown) {
      shown = text;
      fill(why, whyParts(job, reasons.get(job.reason)));
      fill(labels, Object.entries(job.labels).map(([key, value]) =>
        h("a", { class: "tag", href: link("/jobs", { label: `${key}:${value}` }) }, `${key}:${value}`)));
    }
    showFacts(facts, job);
  }

  function showMessage(text) {
    if (message.textContent !== text) fill(message, withJobLinks(text));
  }

  function showProgress(job) {
    const share = shareOf(job);
    bar.hidden = share === null || isOver(job.status);
    if (share !== null) bar.value = share;
    setText(far, progressWords(job));
  }

  return { element, actions, show };
}

/** A text in which ids of jobs are links to them. */
function withJobLinks(text) {
  return text.split(JOB_ID).map((part, index) => (index % 2 ? h("a", { href: link(`/jobs/${part}`) }, part) : part));
}

function whyParts(job, reason) {
  const parts = [];
  const wrong = job.status === "failed" || (job.status === "queued" && job.fault);
  if (wrong && reason) {
    parts.push(h("dl", { class: "facts reason" },
      h("dt", {}, "Reason"), h("dd", {}, h("strong", {}, words(job.reason)), ` – ${reason.meaning}`),
      h("dt", {}, "Whose fault"), h("dd", {}, faultWords(job.fault)),
      reason.remedy && [h("dt", {}, "What to do"), h("dd", {}, reason.remedy)],
      h("dt", {}, "Retry as it is"), h("dd", {}, job.retry_helps ? "may help" : "ends the same way")));
  } else if (job.status === "cancelled" && reason) {
    parts.push(h("p", { class: "hint" }, `${reason.meaning} ${reason.remedy}`));
  }
  if (wrong && job.evidence) parts.push(evidence(job.evidence));
  if (job.warnings.length) parts.push(warnings(job.warnings));
  return parts;
}

function evidence({ attempt, host, exit_code: code, signal, log, job, argument, reason }) {
  const facts = [
    attempt !== null && `attempt ${attempt}`, host && `host ${host}`, code !== null && `exit code ${code}`,
    signal, argument && `argument ${argument}`, reason && `its reason: ${words(reason)}`,
  ].filter(Boolean);
  return h("details", { open: true, class: "evidence" },
    h("summary", {}, "Evidence", h("span", { class: "hint" }, ` ${facts.join(" · ")}`)),
    job && h("p", {}, "Needed job: ", h("a", { href: link(`/jobs/${encodeURIComponent(job)}`) }, job)),
    log.length > 0 && h("pre", { class: "log-lines", tabindex: 0, "aria-label": "The last lines of its log" }, log.join("\n")));
}

function warnings(items) {
  return h("details", { class: "note" },
    h("summary", {}, items.length === 1 ? "1 warning" : `${items.length} warnings`),
    h("ul", {}, items.map(({ loc, msg, hint }) => h("li", {}, h("code", {}, loc.slice(-1)[0] ?? ""), " ", msg, " ", h("span", { class: "hint" }, hint)))));
}

function showFacts(list, job) {
  const { resources, placement } = job;
  const rows = [
    ["Task", job.task],
    ["Devices", `${resources.nodes > 1 ? `${resources.nodes} hosts × ` : ""}${resources.devices_per_node} ${resources.device}`],
    [isOver(job.status) ? "Ran on" : "Runs on", (placement ?? []).map(({ host, devices }) => `${host} [${devices.join(", ")}]`).join(", ") || "–"],
    ["Attempt", String(job.attempt) + (job.max_retries ? ` of at most ${job.max_retries + 1} at its own charge` : "")],
    ["Priority", String(job.priority)],
    ["Loss", number(job.progress.loss)],
    ["Tokens/s", count(job.progress.tokens_per_second)],
    ["Epoch", job.progress.epoch === null ? "–" : `${number(job.progress.epoch)} of ${number(job.progress.total_epochs)}`],
    ["Created", `${moment(job.created_at)} by ${job.submitted_by}`],
    ["Started", moment(job.started_at)],
    [isOver(job.status) ? "Last attempt took" : "Runs for", duration(between(job.started_at, job.finished_at))],
  ];
  if (list.children.length !== rows.length) {
    fill(list, rows.map(([name]) => h("div", {}, h("dt", {}, name), h("dd", {}))));
  }
  rows.forEach(([name, value], index) => {
    const [term, detail] = list.children[index].children;
    setText(term, name);
    setText(detail, value);
  });
}
