// Data sets: all of them, or one.

import { showList } from "../datasets/list.js";
import { showOne } from "../datasets/one.js";

export function show(root, params) {
  return params.id ? showOne(root, params) : showList(root, params);
}
