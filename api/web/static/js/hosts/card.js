// One host: its state, its devices and what runs on them.

import { fill, h, setText } from "../dom.js";
import { ago, bytes, words } from "../format.js";
import { act, actionTitle, actionsFor } from "./actions.js";
import { occupants, statesOf } from "./words.js";

/** @param {() => void} onChange called after something was done with the host */
export function hostCard(host, onChange) {
  const title = h("h2", {}, host.name);
  const state = h("span", { class: "host-state" });
  const heard = h("span", { class: "muted number" });
  const why = h("div", { class: "break" });
  const devices = h("ul", { class: "devices", "aria-label": "Devices" });
  const labels = h("div", { class: "tags" });
  const info = h("p", { class: "hint break" });
  const buttons = h("div", { class: "row" });
  const element = h("article", { class: "card host", "aria-label": host.name },
    h("div", { class: "head" }, title, state, heard, buttons), why, devices, labels, info);
  element.update = update;
  let drawn = "";

  function update(now) {
    setText(heard, `heard ${ago(now.heartbeat_at)}`);
    const { heartbeat_at: _, ...rest } = now;
    const text = JSON.stringify(rest);
    if (text === drawn) return; // what has not changed keeps its focus
    drawn = text;
    const states = statesOf(now);
    state.dataset.state = states[0]?.name ?? "ready";
    setText(state, states.map(({ name }) => name).join(", ") || "ready");
    fill(why, states.map(({ why: reason }) => h("p", {}, reason)));
    why.hidden = !states.length;
    fill(devices, deviceItems(now));
    labels.hidden = !Object.keys(now.labels).length;
    fill(labels, Object.entries(now.labels).map(([label, value]) => h("span", { class: "tag" }, `${label}: ${value}`)));
    info.hidden = !Object.keys(now.info).length;
    setText(info, Object.entries(now.info).map(([fact, value]) => factText(fact, value)).join(" · "));
    fill(buttons, actionsFor(now).map((action) => h("button", {
      type: "button", "aria-label": `${actionTitle(action)} ${now.name}`,
      onclick: async () => {
        if (await act(action, now)) onChange();
      },
    }, actionTitle(action))));
  }

  return element;
}

function factText(name, value) {
  if (name.endsWith("_bytes")) return `${words(name.slice(0, -6))} ${bytes(value)}`;
  return `${words(name)} ${typeof value === "object" ? JSON.stringify(value) : value}`;
}

function deviceItems(host) {
  const running = occupants(host);
  return host.devices.map((device, place) => {
    const part = running[place];
    const name = `${host.device} ${device.index}`;
    const about = [device.name, device.memory_bytes && bytes(device.memory_bytes)].filter(Boolean).join(", ");
    return h("li", { class: part ? "device busy" : "device free" },
      h("strong", {}, name), h("span", { class: "muted" }, about),
      part ? occupant(part) : h("span", {}, "free"));
  });
}

function occupant({ job_id: id, attempt, rank }) {
  if (!id) return h("span", {}, "in use by another project");
  const text = `${id.slice(-12)}${attempt > 1 ? `, attempt ${attempt}` : ""}${rank ? `, rank ${rank}` : ""}`;
  return h("span", {}, "job ", h("a", { href: `#/jobs/${id}`, title: id }, text));
}
