// Downloads. Without a key a link does; with one the file is fetched, since a link carries no header.

import { send } from "../api.js";
import { currentKey } from "../auth.js";
import { openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { problemBox } from "../problems.js";

/** A link that stores what is at an address of the API under a name. */
export function downloadLink(address, name, text, label) {
  return h("a", { href: address, download: name, "aria-label": label, onclick: (event) => {
    if (!currentKey()) return;
    event.preventDefault();
    fetchFile(address, name).catch((error) =>
      openDialog({ title: "The download has failed", body: [problemBox(error)], confirm: "Close", cancel: "Back" }));
  } }, text);
}

async function fetchFile(address, name) {
  const response = await send("GET", address);
  if ("showSaveFilePicker" in window && Number(response.headers.get("Content-Length")) > 64 * 2 ** 20) {
    const file = await window.showSaveFilePicker({ suggestedName: name });
    await response.body.pipeTo(await file.createWritable());
    return;
  }
  const url = URL.createObjectURL(await response.blob());
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
