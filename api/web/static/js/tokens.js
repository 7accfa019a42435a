// Records as a model sees them: token by token, what is masked dimmed.

import { h } from "./dom.js";
import { count } from "./format.js";

/** What POST /jobs/validate?preview=N answers as `preview`. */
export function tokenPreview({ split, template, examples }) {
  return h("div", { class: "preview" },
    h("p", { class: "hint" }, `Split ${split}, ${template ? `chat template ${template}` : "no chat template"}. `,
      h("span", { class: "token learned" }, "learned"), " ", h("span", { class: "token masked" }, "masked")),
    examples.map(example));
}

function example({ location, tokens, length, label_tokens: learned, cut, lost_turns: lost, left_out: leftOut }) {
  const notes = [`${count(length)} tokens, ${count(learned)} learned`];
  if (cut) notes.push("cut to the longest length");
  if (lost) notes.push(`${lost} turns lost`);
  if (leftOut) notes.push(`left out: ${leftOut}`);
  if (tokens.length < length) notes.push(`the first ${count(tokens.length)} are shown`);
  return h("figure", { class: "record" },
    h("figcaption", {}, h("strong", {}, location), " ", h("span", { class: "muted" }, notes.join(", "))),
    h("p", { class: "tokens" }, tokens.map((token, index) => [
      token.response !== (tokens[index - 1]?.response ?? null) && token.response !== null &&
        h("span", { class: "tag response" }, String(token.response)),
      h("span", { class: token.learned ? "token learned" : "token masked", title: `${token.id}` }, shown(token.text)),
    ])));
}

/** Text with its line ends and other unprintable characters made visible. */
function shown(text) {
  return text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥") || "∅";
}
