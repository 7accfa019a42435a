import { fill, h } from "../dom.js";

export function show(root) {
  fill(root, h("h1", {}, "compare"));
}
