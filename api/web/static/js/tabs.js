// Tabs: one panel is seen at a time. A panel starts when it is first seen, and again after it was not.

import { fill, h } from "./dom.js";

/**
 * @param {Array<{name: string, title: string, make: () => {element: Element, start: (signal: AbortSignal) => void}}>} tabs
 * @param {object} options
 * @param {string} options.label
 * @param {string|null} options.chosen name of the tab that is seen first
 * @param {AbortSignal} options.signal ends the panel that is seen
 * @param {(name: string) => void} options.onChoose
 * @returns {{element: Element, again: () => void}} `again` starts the panel that is seen anew
 */
export function tabs(tabList, { label, chosen: first, signal, onChoose }) {
  const panel = h("div", { role: "tabpanel", id: "tab-panel", tabindex: -1 });
  const buttons = tabList.map(({ name, title }) => h("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "tab-panel", onclick: () => choose(name),
  }, title));
  const list = h("div", { role: "tablist", "aria-label": label }, buttons);
  let leave = null;
  let here = "";

  list.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1 };
    if (at < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const button = buttons[(moves[event.key] + buttons.length) % buttons.length];
    button.focus();
    button.click();
  });
  signal.addEventListener("abort", () => leave?.abort());

  function choose(name) {
    leave?.abort();
    leave = new AbortController();
    here = name;
    tabList.forEach((tab, index) => {
      const chosen = tab.name === name;
      buttons[index].setAttribute("aria-selected", String(chosen));
      buttons[index].tabIndex = chosen ? 0 : -1;
      if (!chosen) return;
      const { element, start } = tab.make();
      panel.setAttribute("aria-labelledby", `tab-${name}`);
      fill(panel, h("h2", { class: "unseen" }, tab.title), element);
      start(leave.signal);
    });
    onChoose(name);
  }

  choose(tabList.some(({ name }) => name === first) ? first : tabList[0].name);
  return { element: h("div", { class: "tabs" }, list, panel), again: () => choose(here) };
}
