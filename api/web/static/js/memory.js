// The memory that a job will take, as a bar of its parts against what a device has.

import { h } from "./dom.js";
import { bytes, words } from "./format.js";

const SMALLEST_SHARE = 0.01;

/**
 * @param {object} memory of an estimate: `bytes`, `moment`, `parts`
 * @param {{bytes: number, name: string}|null} device the largest that can be had; null where none tells
 */
export function memoryBar(memory, device) {
  const whole = Math.max(memory.bytes, device?.bytes ?? 0);
  const parts = shownParts(memory);
  const said = device ? `${bytes(memory.bytes)} of ${bytes(device.bytes)} (${device.name})` : bytes(memory.bytes);
  const over = device && memory.bytes > device.bytes;
  const bar = h("div", { class: "memory-bar", role: "img", "aria-label": `Memory: ${said}` },
    parts.map(({ name, size }) => {
      const part = h("span", { class: "memory-part", "data-part": name, title: `${words(name)}: ${bytes(size)}` });
      part.style.width = `${(100 * size) / whole}%`;
      return part;
    }));
  if (over) {
    const limit = h("span", { class: "memory-limit", title: `${bytes(device.bytes)}: all that the device has` });
    limit.style.left = `${(100 * device.bytes) / whole}%`;
    bar.append(limit);
  }
  return h("figure", { class: "memory" },
    h("figcaption", {}, h("strong", {}, "Memory of the fullest device: "), said,
      over && h("strong", { class: "over" }, ` ${bytes(memory.bytes - device.bytes)} too much`)),
    bar,
    h("ul", { class: "memory-legend" }, parts.map(({ name, size }) =>
      h("li", {}, h("span", { class: "memory-key", "data-part": name }), words(name), " ", h("span", { class: "number muted" }, bytes(size))))),
    h("p", { class: "hint" }, `It holds most at ${memory.moment}.`));
}

/** The parts from large to small; small ones together. */
function shownParts(memory) {
  const all = Object.entries(memory.parts).map(([name, size]) => ({ name, size })).sort((one, other) => other.size - one.size);
  const shown = all.filter(({ size }) => size >= memory.bytes * SMALLEST_SHARE);
  const rest = memory.bytes - shown.reduce((sum, { size }) => sum + size, 0);
  return rest > 0 ? [...shown, { name: "others", size: rest }] : shown;
}

/**
 * The memory of the devices that a job can have: of the hosts with enough devices of the kind, that with the most.
 *
 * @param {Array} hosts of GET /hosts
 * @param {{device: string, devices_per_node: number}} resources
 */
export function largestDevice(hosts, { device, devices_per_node: wanted }) {
  const found = hosts
    .filter((host) => host.device === device && host.devices.length >= wanted)
    .map((host) => ({ name: host.name, bytes: Math.min(...host.devices.map((each) => each.memory_bytes ?? NaN)) }))
    .filter((host) => Number.isFinite(host.bytes));
  return found.sort((one, other) => other.bytes - one.bytes)[0] ?? null;
}
