// The hosts, what runs on their devices, and keeping jobs away from them.

import { all } from "../api.js";
import { fill, h, reconcile, setText } from "../dom.js";
import { count } from "../format.js";
import { hostCard } from "../hosts/card.js";
import { occupants, statesOf } from "../hosts/words.js";
import { repeat } from "../live.js";
import { problemBox } from "../problems.js";

const EVERY_MS = 3000;

export function show(root, { signal }) {
  const problem = h("div", { role: "alert" });
  const sum = h("p", { class: "muted" });
  const empty = h("p", { class: "card empty", hidden: true }, "No host has registered yet. A worker registers its own when it starts.");
  const cards = h("div", { class: "hosts" });
  fill(root, h("div", { class: "head" }, h("h1", {}, "Hosts"), sum), problem, empty, cards);
  const list = repeat(load, { signal, interval: () => EVERY_MS, onError: (error) => fill(problem, problemBox(error)) });

  async function load(stop) {
    const hosts = await all("/hosts", {}, { signal: stop });
    fill(problem);
    reconcile(cards, hosts, ({ name }) => name, (host) => hostCard(host, list.now), (card, host) => card.update(host));
    empty.hidden = hosts.length > 0;
    setText(sum, hosts.length ? summary(hosts) : "");
  }
}

function summary(hosts) {
  const ready = hosts.filter((host) => !statesOf(host).length);
  const devices = ready.reduce((found, host) => found + host.devices.length, 0);
  const busy = ready.reduce((found, host) => found + occupants(host).filter(Boolean).length, 0);
  return `${count(ready.length)} of ${count(hosts.length)} ready, ${count(busy)} of their ${count(devices)} devices in use`;
}
