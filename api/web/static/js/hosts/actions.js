// Keeping jobs away from a host, for keys with the scope `admin`.

import { path, post } from "../api.js";
import { openDialog } from "../dialog.js";
import { h } from "../dom.js";

const WHAT = {
  cordon: {
    title: "Cordon", reason: true,
    says: "It gets no new jobs until it is uncordoned. What runs there goes on.",
  },
  drain: {
    title: "Drain", reason: true, dangerous: true,
    says: "It gets no new jobs, and what runs there stops with a checkpoint and goes on elsewhere.",
  },
  uncordon: { title: "Uncordon", says: "It gets jobs again." },
};

/** What can be done with a host as it is. */
export function actionsFor({ cordoned, draining, excluded }) {
  return [!cordoned && "cordon", !draining && "drain", (cordoned || draining || excluded) && "uncordon"].filter(Boolean);
}

export function actionTitle(action) {
  return WHAT[action].title;
}

/** Ask, then do it. Resolves to the host as it is then, null when nothing was done. */
export function act(action, host) {
  const { title, says, reason, dangerous } = WHAT[action];
  const why = h("input", { id: "host-reason", maxlength: 500, autocomplete: "off" });
  return openDialog({
    title: `${title} ${host.name}?`,
    body: [h("p", {}, says), reason && h("div", { class: "field" }, h("label", { for: "host-reason" }, "Why (shown to who asks)"), why)].filter(Boolean),
    confirm: title, dangerous,
    action: () => post(path`/hosts/${host.name}/${action}`, undefined, { query: { reason: why.value.trim() } }),
  });
}
