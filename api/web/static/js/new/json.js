// The arguments as the JSON text that they are.

import { h, setOrRemove, setText } from "../dom.js";

/** A text field of a config; `onChange` gets each config that the text can be read as. */
export function jsonEditor({ onChange }) {
  const text = h("textarea", { id: "json", rows: 28, spellcheck: "false", "aria-describedby": "json-problem" });
  const problem = h("p", { id: "json-problem", class: "wrong", role: "status" });
  const file = h("input", { type: "file", id: "json-file", accept: ".json,application/json" });
  const element = h("div", { class: "card json", hidden: true },
    h("div", { class: "field" }, h("label", { for: "json-file" }, "Open an argument file"), file),
    h("div", { class: "field" }, h("label", { for: "json" }, "Arguments (config)"), text, problem));

  function read() {
    const { config, why } = parse(text.value);
    setText(problem, why);
    setOrRemove(text, "aria-invalid", why ? "true" : null);
    if (config) onChange(config);
  }

  text.addEventListener("input", read);
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    text.value = await file.files[0].text();
    read();
  });
  return {
    element,
    focus: () => text.focus(),
    show(config) {
      text.value = JSON.stringify(config, null, 2);
      setText(problem, "");
      setOrRemove(text, "aria-invalid", null);
    },
  };
}

function parse(text) {
  try {
    const config = JSON.parse(text);
    if (config === null || typeof config !== "object" || Array.isArray(config)) return { why: "Expected an object: { … }." };
    return { config, why: "" };
  } catch (error) {
    return { why: `Not JSON yet: ${error.message}. The last text that was counts.` };
  }
}
