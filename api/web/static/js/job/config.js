// The config of a job: as given, as it runs, and against an argument file that ships.

import { all, get, path } from "../api.js";
import { fill, h } from "../dom.js";
import { value } from "../format.js";
import { isAbort, problemBox } from "../problems.js";
import { closest, differences } from "./difference.js";

const VIEWS = [["given", "As given"], ["resolved", "As run"], ["preset", "Against a preset"]];

export function configPanel(current) {
  const job = current();
  const table = h("div", { class: "card flush" });
  const problem = h("div", { role: "alert" });
  const filter = h("input", { type: "search", id: "config-filter", placeholder: "Part of a name", oninput: show });
  const preset = h("select", { id: "config-preset", onchange: show });
  const presetField = h("div", { class: "field" }, h("label", { for: "config-preset" }, "Preset"), preset);
  const equal = h("input", { type: "checkbox", onchange: show });
  const equalField = h("label", { class: "check" }, equal, "Also what is equal");
  const changed = h("input", { type: "checkbox", onchange: show });
  const changedField = h("label", { class: "check" }, changed, "Only what is not the default");
  const views = VIEWS.map(([name, title]) => h("button", { type: "button", "data-view": name, onclick: () => choose(name) }, title));
  const presets = new Map();
  let defaults = {};
  let view = "given";

  const element = h("section", { "aria-label": "Config" },
    h("div", { class: "config-tools" },
      h("div", { class: "row", role: "group", "aria-label": "Which config" }, views),
      h("div", { class: "field" }, h("label", { for: "config-filter" }, "Argument"), filter),
      presetField, equalField, changedField),
    problem, table);

  async function start(signal) {
    choose(view);
    try {
      const [list, schema] = await Promise.all([all("/presets", {}, { signal }), get(path`/schemas/${job.task}`, {}, { signal })]);
      defaults = Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, each]) => [name, each.default ?? null]));
      const shipped = await Promise.all(list.filter(({ task }) => task === job.task)
        .map(({ family, name }) => get(path`/presets/${family}/${name}`, {}, { signal })));
      for (const each of shipped) presets.set(`${each.family}/${each.name}`, each.config);
      fill(preset, [...presets.keys()].map((name) => h("option", { value: name }, name)));
      preset.value = closest(job.config, job.resolved_config, presets) ?? "";
      show();
    } catch (error) {
      if (!isAbort(error)) fill(problem, problemBox(error));
    }
  }

  function choose(name) {
    view = name;
    for (const button of views) button.setAttribute("aria-pressed", String(button.dataset.view === name));
    presetField.hidden = equalField.hidden = name !== "preset";
    changedField.hidden = name !== "resolved";
    show();
  }

  function show() {
    const part = filter.value.trim().toLowerCase();
    const wanted = (name) => name.toLowerCase().includes(part);
    fill(table, view === "preset" ? presetTable(wanted) : plainTable(wanted));
  }

  function plainTable(wanted) {
    const config = view === "given" ? job.config : job.resolved_config;
    const isDefault = (name, given) => changed.checked && view === "resolved" && value(given) === value(defaults[name] ?? null);
    const rows = Object.entries(config).filter(([name, given]) => wanted(name) && !isDefault(name, given));
    if (!rows.length) return h("p", { class: "empty" }, "No such argument.");
    return h("table", { class: "config" }, h("caption", { class: "unseen" }, VIEWS.find(([name]) => name === view)[1]), headRow("Argument", "Value"),
      h("tbody", {}, rows.map(([name, given]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value(given))))));
  }

  function presetTable(wanted) {
    const shipped = presets.get(preset.value);
    if (!shipped) return h("p", { class: "empty" }, presets.size ? "Choose a preset." : `No preset of task ${job.task} ships.`);
    const rows = differences(shipped, job.config, job.resolved_config).filter(({ name, kind }) => wanted(name) && (equal.checked || kind !== "equal"));
    if (!rows.length) return h("p", { class: "empty" }, "No difference.");
    return h("table", { class: "config" }, h("caption", { class: "unseen" }, `This job against ${preset.value}`), headRow("", "Argument", preset.value, "This job"),
      h("tbody", {}, rows.map(({ name, kind, before, after }) => h("tr", { class: kind },
        h("td", { class: "sign" }, { changed: "≠", added: "+", removed: "−", equal: "=" }[kind], h("span", { class: "unseen" }, kind)),
        h("th", { scope: "row" }, name), h("td", {}, before), h("td", {}, after)))));
  }

  return { element, start };
}

function headRow(...titles) {
  return h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title || h("span", { class: "unseen" }, "Difference")))));
}
