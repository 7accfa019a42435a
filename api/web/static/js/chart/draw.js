// Paints one frame of a chart. It knows nothing of where the numbers come from.

import { indexOf, logTicks, scale, ticks } from "./scale.js";
import { thin } from "./thin.js";

const FONT = "11px system-ui, sans-serif";
const MARGIN = { top: 8, right: 10, bottom: 22, left: 58 };

/**
 * Where x and y lie on the canvas for what is visible.
 *
 * @param {Array} series {xs, ys, shown: ys as drawn}
 * @param {object} view {width, height, range: [low, high]|null, log}
 * @returns {{x: object, y: object}|null} null when there is nothing to draw
 */
export function scales(series, { width, height, range, log }) {
  const [low, high] = range ?? wholeRange(series);
  const limits = { low: Infinity, high: -Infinity };
  for (const { xs, ys, shown, faint } of series) {
    for (const numbers of faint ? [ys, shown] : [shown]) widen(limits, xs, numbers, low, high, log);
  }
  if (!(low <= high) || !(limits.low <= limits.high)) return null;
  const pad = log ? 0 : (limits.high - limits.low) * 0.05 || Math.abs(limits.high) * 0.05 || 1;
  const stretch = log && limits.low === limits.high ? 2 : 1;
  return {
    x: scale(low, high > low ? high : low + 1, MARGIN.left, width - MARGIN.right),
    y: scale((limits.low - pad) / stretch, (limits.high + pad) * stretch, height - MARGIN.bottom, MARGIN.top, log),
  };
}

/** The lowest and the highest x of all series. */
export function wholeRange(series) {
  const filled = series.filter(({ xs }) => xs.length);
  return [Math.min(...filled.map(({ xs }) => xs[0])), Math.max(...filled.map(({ xs }) => xs.at(-1)))];
}

function widen(limits, xs, ys, low, high, log) {
  const to = indexOf(xs, high + 1e-9);
  for (let index = indexOf(xs, low); index < to; index += 1) {
    const y = ys[index];
    if (Number.isNaN(y) || (log && y <= 0)) continue;
    if (y < limits.low) limits.low = y;
    if (y > limits.high) limits.high = y;
  }
}

/** Paint axes, lines, the cursor and the stretch that is being chosen. */
export function paint(context, series, { x, y }, { width, height, colors, format, cursor, chosen }) {
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  paintAxes(context, x, y, { width, height, colors, format });
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, 0, width - MARGIN.left - MARGIN.right, height - MARGIN.bottom + 1);
  context.clip();
  if (chosen) {
    context.fillStyle = colors.chosen;
    context.fillRect(chosen[0], MARGIN.top, chosen[1] - chosen[0], height - MARGIN.top - MARGIN.bottom);
  }
  for (const one of series) {
    if (one.faint) paintLine(context, one.xs, one.ys, x, y, { color: one.color, alpha: 0.25, width: 1 });
    paintLine(context, one.xs, one.shown, x, y, { color: one.color, alpha: 1, width: 1.5, dots: one.dots, dash: one.dash });
  }
  if (cursor !== null) paintCursor(context, cursor, series, x, y, { height, colors });
  context.restore();
}

function paintAxes(context, x, y, { width, height, colors, format }) {
  const bottom = height - MARGIN.bottom;
  context.lineWidth = 1;
  context.strokeStyle = colors.grid;
  context.fillStyle = colors.label;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const marks = y.log ? logTicks(y.low, y.high) : ticks(y.low, y.high, Math.max(2, bottom / 44));
  for (const mark of marks) {
    const place = Math.round(y.place(mark)) + 0.5;
    context.beginPath();
    context.moveTo(MARGIN.left, place);
    context.lineTo(width - MARGIN.right, place);
    context.stroke();
    context.fillText(format(mark), MARGIN.left - 6, place);
  }
  context.textBaseline = "alphabetic";
  for (const mark of ticks(x.low, x.high, Math.max(2, width / 110))) {
    if (!Number.isInteger(mark)) continue;
    const place = x.place(mark);
    context.textAlign = place > width - 40 ? "right" : "center";
    context.fillText(mark.toLocaleString("en"), Math.min(place, width - 2), height - 6);
  }
}

function paintLine(context, xs, ys, x, y, { color, alpha, width, dots = false, dash = [] }) {
  const from = Math.max(0, indexOf(xs, x.low) - 1);
  const to = Math.min(xs.length, indexOf(xs, x.high) + 1);
  if (to <= from) return;
  const indices = thin(xs, ys, from, to, x.place);
  context.globalAlpha = alpha;
  context.strokeStyle = context.fillStyle = color;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.setLineDash(dash);
  context.beginPath();
  let open = false;
  for (const index of indices) {
    const value = ys[index];
    if (Number.isNaN(value) || (y.log && value <= 0)) {
      open = false;
      continue;
    }
    if (open) context.lineTo(x.place(xs[index]), y.place(value));
    else context.moveTo(x.place(xs[index]), y.place(value));
    open = true;
  }
  context.stroke();
  context.setLineDash([]);
  if (dots || to - from === 1) {
    for (const index of indices.length <= 60 ? indices : []) dot(context, x.place(xs[index]), y.place(ys[index]));
  }
  context.globalAlpha = 1;
}

function dot(context, left, top) {
  if (!Number.isFinite(top)) return;
  context.beginPath();
  context.arc(left, top, 2.5, 0, 2 * Math.PI);
  context.fill();
}

function paintCursor(context, cursor, series, x, y, { height, colors }) {
  const place = Math.round(x.place(cursor)) + 0.5;
  context.strokeStyle = colors.label;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(place, MARGIN.top);
  context.lineTo(place, height - MARGIN.bottom);
  context.stroke();
  for (const { at, shown, xs, color } of series) {
    if (at < 0 || at === undefined || (y.log && shown[at] <= 0)) continue;
    context.fillStyle = color;
    dot(context, x.place(xs[at]), y.place(shown[at]));
  }
}
