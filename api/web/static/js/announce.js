// What a screen reader is told without moving the focus.

let last = "";

/** Say a sentence once. */
export function announce(text) {
  if (text === last) return;
  last = text;
  document.getElementById("announcer").textContent = text;
}
