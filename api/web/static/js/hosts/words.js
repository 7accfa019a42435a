// What a host's state is called.

import { moment } from "../format.js";

const STATES = [
  ["lost", (host) => !host.alive, () => "No heartbeat: it gets no jobs until it tells again that it lives."],
  ["draining", (host) => host.draining, (host) => host.cordon_reason || "What runs there stops with a checkpoint and goes on elsewhere."],
  ["cordoned", (host) => host.cordoned && !host.draining, (host) => host.cordon_reason || "It gets no new jobs."],
  ["excluded", (host) => host.excluded, excludedWhy],
  ["takes no jobs", (host) => !host.accepts_jobs, () => "Its worker is stopping or has not started yet."],
];

/** The states that keep jobs away: `{name, why}`, the gravest first; none: it is ready. */
export function statesOf(host) {
  return STATES.filter(([, holds]) => holds(host)).map(([name, , why]) => ({ name, why: why(host) }));
}

function excludedWhy({ exclusion_reason: reason, excluded_until: until }) {
  return `${reason || "Attempts have failed there."} ${until ? `It gets no jobs until ${moment(until)}` : "It gets none"} unless it is uncordoned.`;
}

/** What runs on each device of a host, by its place in `devices`: a part of a job, or null. */
export function occupants(host) {
  return host.devices.map(({ index }) => host.running.find(({ devices }) => devices.includes(index)) ?? null);
}
