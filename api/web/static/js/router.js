// Which page an address behind the # is. A page is a module with `show(root, params)`: it draws itself into
// `root` and gives a function that ends it, or nothing.

import { announce } from "./announce.js";
import { mayAskAgain } from "./auth.js";
import { fill, h } from "./dom.js";
import { Problem, isAbort, problemBox } from "./problems.js";

const ROUTES = [
  { pattern: /^\/jobs$/, title: "Jobs", nav: "#/jobs", load: () => import("./pages/jobs.js") },
  { pattern: /^\/jobs\/(?<id>[^/]+)$/, title: "Job", nav: "#/jobs", load: () => import("./pages/job.js") },
  { pattern: /^\/new$/, title: "New job", nav: "#/new", load: () => import("./pages/new.js") },
  { pattern: /^\/datasets$/, title: "Data sets", nav: "#/datasets", load: () => import("./pages/datasets.js") },
  {
    pattern: /^\/datasets\/(?<id>[^/]+)$/, title: "Data set", nav: "#/datasets",
    load: () => import("./pages/datasets.js"),
  },
  { pattern: /^\/hosts$/, title: "Hosts", nav: "#/hosts", load: () => import("./pages/hosts.js") },
  { pattern: /^\/compare$/, title: "Compare jobs", nav: "#/jobs", load: () => import("./pages/compare.js") },
];
const HOME = "#/jobs";
const SLOW_MS = 300;

/** The address of a page: `link("/compare", {ids: "1,2"})`; null and "" are left out. */
export function link(page, query = {}) {
  const given = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  const text = new URLSearchParams(given.filter(([, value]) => value !== null && value !== "")).toString();
  return `#${page}${text ? `?${text}` : ""}`;
}

/** Show another page. */
export function go(page, query = {}) {
  location.hash = link(page, query);
}

/** Change the query of the address without leaving the page. */
export function keepInAddress(query) {
  const [page] = location.hash.slice(1).split("?");
  history.replaceState(null, "", link(page, query));
}

/** Let `document.title` say what is shown. */
export function setTitle(title) {
  document.title = `${title} · Regatta`;
}

/**
 * Show the page of the address now and whenever it changes.
 *
 * @param {Element} root
 * @param {Element} nav holds the links to pages
 */
export function startRouter(root, nav) {
  let leave = () => {};
  let first = true;

  async function turn() {
    const [page, query] = (location.hash.slice(1) || HOME.slice(1)).split("?");
    if (!page.startsWith("/")) return; // a link within the page, such as the one that skips the navigation
    leave();
    mayAskAgain();
    const controller = new AbortController();
    const { signal } = controller;
    let cleanup = null;
    leave = () => {
      controller.abort();
      cleanup?.();
    };
    const route = find(page);
    setTitle(route?.title ?? "Not found");
    mark(nav, route?.nav);
    const stage = h("div", { class: "page" });
    fill(root, stage);
    const waiting = setTimeout(() => {
      if (!stage.hasChildNodes()) fill(stage, h("p", { class: "empty" }, "Loading…"));
    }, SLOW_MS);
    signal.addEventListener("abort", () => clearTimeout(waiting));
    try {
      if (!route) throw new Problem(404, { title: "Nothing is here", detail: `There is no page ${page}.` });
      const module = await route.load();
      if (signal.aborted) return;
      const ended = await module.show(stage, { ...route.params, query: new URLSearchParams(query), signal });
      clearTimeout(waiting);
      if (signal.aborted) ended?.();
      else cleanup = ended;
    } catch (error) {
      clearTimeout(waiting);
      if (!isAbort(error) && !signal.aborted) fill(stage, h("h1", {}, "This page cannot be shown"), problemBox(error));
    }
    if (!first && !signal.aborted) takeFocus(stage);
    first = false;
  }

  window.addEventListener("hashchange", turn);
  turn();
  return { again: turn };
}

function find(page) {
  for (const route of ROUTES) {
    const match = route.pattern.exec(page);
    if (match) return { ...route, params: decoded(match.groups ?? {}) };
  }
  return null;
}

function decoded(groups) {
  return Object.fromEntries(Object.entries(groups).map(([name, value]) => [name, decodeURIComponent(value)]));
}

function mark(nav, address) {
  for (const anchor of nav.querySelectorAll("a")) {
    if (anchor.getAttribute("href") === address) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}

function takeFocus(stage) {
  const heading = stage.querySelector("h1");
  announce(document.title);
  if (!heading || stage.contains(document.activeElement)) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  scrollTo(0, 0);
}
