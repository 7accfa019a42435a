// Building elements. Text goes in as text nodes only, and links stay on this server.

/**
 * An element with attributes and children.
 *
 * @param {string} tag
 * @param {object} attributes `onclick` and the like are listeners; true and false set and leave out; `value` and
 *   `checked` are set as properties.
 * @param {...(Node|string|number|null|false|Array)} children null and false are left out
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...nodes(children));
  return element;
}

function setAttribute(element, name, value) {
  if (name.startsWith("on")) {
    element.addEventListener(name.slice(2), value);
  } else if (name === "value" || name === "checked") {
    element[name] = value;
  } else if (value === true) {
    element.setAttribute(name, "");
  } else if (value !== false && value !== null && value !== undefined) {
    if (name === "href" && !isLocal(String(value))) throw new Error(`not an address of this server: ${value}`);
    element.setAttribute(name, String(value));
  }
}

function isLocal(address) {
  return address.startsWith("#") || (address.startsWith("/") && !/^\/[/\\]/.test(address)) || address.startsWith("blob:");
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** Put children in place of all that the element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Set an element's text; nothing is touched where it is the same, so that selections stay. */
export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Set or remove an attribute where it differs. */
export function setOrRemove(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/**
 * Let the children of `parent` be one element for each item, in their order. What is there stays the same
 * element, so that focus and selection survive.
 *
 * @param {Element} parent
 * @param {Array} items
 * @param {(item) => string} keyOf
 * @param {(item) => Element} create
 * @param {(element, item) => void} update also called for what was just created
 */
export function reconcile(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = new Set(items.map(keyOf));
  for (const [key, child] of known) if (!wanted.has(key)) child.remove();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
}
