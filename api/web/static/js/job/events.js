// What has happened to a job, the newest first.

import { get, path } from "../api.js";
import { fill, h } from "../dom.js";
import { moment, words } from "../format.js";
import { repeat } from "../live.js";
import { problemBox } from "../problems.js";

const BUSY_MS = 3000;
const MOST = 2000;

/** The panel of events; `isOver` says whether more may come. */
export function eventsPanel(jobId, isOver) {
  const body = h("tbody");
  const problem = h("div", { role: "alert" });
  let after = 0;
  const element = h("section", { "aria-label": "Events" }, problem, h("div", { class: "card flush" },
    h("table", { class: "events" }, h("caption", { class: "unseen" }, "Events, the newest first"),
      h("thead", {}, h("tr", {}, ["Time", "Event", "By", "Message"].map((title) => h("th", { scope: "col" }, title)))), body)));

  function start(signal) {
    repeat(async (stop) => {
      let more = true;
      while (more) {
        const { items, next_cursor: next } = await get(path`/jobs/${jobId}/events`, { after, limit: 500 }, { signal: stop });
        for (const event of items) {
          body.prepend(eventRow(event));
          after = event.id;
        }
        while (body.children.length > MOST) body.lastElementChild.remove();
        more = next !== null;
      }
      fill(problem);
    }, { signal, interval: () => (isOver() ? null : BUSY_MS), onError: (error) => fill(problem, problemBox(error)) });
  }

  return { element, start };
}

function eventRow(event) {
  const change = event.to_status && h("span", { class: "status", "data-status": event.to_status }, event.to_status);
  const detail = Object.keys(event.data).length > 0 &&
    h("details", {}, h("summary", { class: "hint" }, "Details"), h("pre", { tabindex: 0 }, JSON.stringify(event.data, null, 2)));
  return h("tr", {},
    h("td", { class: "number" }, h("time", { datetime: event.time }, moment(event.time))),
    h("td", {}, change || words(event.type), event.reason && h("div", { class: "hint" }, words(event.reason))),
    h("td", {}, event.actor, h("div", { class: "hint" }, `attempt ${event.attempt}`)),
    h("td", { class: "break" }, event.message, detail));
}
