// The pointer over a chart: moving reads values, dragging chooses a stretch, a double click shows all again.

const SHORTEST_DRAG = 6;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {object} on
 * @param {(pixel: number) => number|undefined} on.back the step at a pixel
 * @param {(x: number|null) => void} on.onCursor
 * @param {(pixels: [number, number]|null) => void} on.onChoosing while dragging
 * @param {(range: [number, number]|null) => void} on.onRange
 */
export function onZoomGestures(canvas, { back, onCursor, onChoosing, onRange }) {
  let start = null;

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls the page
    start = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    onCursor(back(event.offsetX) ?? null);
    if (start !== null) onChoosing(ordered(start, event.offsetX));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [left, right] = ordered(start, event.offsetX);
    start = null;
    onChoosing(null);
    if (right - left < SHORTEST_DRAG) return;
    const range = [back(left), back(right)];
    if (range.every(Number.isFinite)) onRange(range);
  });
  canvas.addEventListener("pointercancel", () => {
    start = null;
    onChoosing(null);
  });
  canvas.addEventListener("pointerleave", () => {
    if (start === null) onCursor(null);
  });
  canvas.addEventListener("dblclick", () => onRange(null));
}

function ordered(one, other) {
  return one < other ? [one, other] : [other, one];
}
