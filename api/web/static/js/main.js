// Starts the dashboard: pages, theme, key, and the line that tells a lost connection.

import { askForKey, currentKey, mayAskAgain, useKey } from "./auth.js";
import { startRouter } from "./router.js";
import { startTheme } from "./theme.js";

const router = startRouter(document.getElementById("main"), document.getElementById("nav"));
startTheme(document.getElementById("theme"));
startKey(document.getElementById("key"));
startConnection(document.getElementById("connection"));
startSkip(document.querySelector(".skip"), document.getElementById("main"));

function startKey(button) {
  const show = () => {
    button.textContent = currentKey() ? "Forget key" : "Use a key";
  };
  button.addEventListener("click", async () => {
    mayAskAgain();
    if (currentKey()) useKey("");
    else if (!(await askForKey("What you do from now on is done with this key."))) return;
    router.again();
  });
  document.addEventListener("regatta:key", show);
  show();
}

function startConnection(line) {
  document.addEventListener("regatta:connection", ({ detail: connected }) => {
    line.hidden = connected;
    line.textContent = connected ? "" : "The server does not answer. What you see may be old; trying again.";
  });
}

function startSkip(anchor, main) {
  anchor.addEventListener("click", (event) => {
    event.preventDefault(); // the address behind the # belongs to the router
    main.focus();
  });
}
