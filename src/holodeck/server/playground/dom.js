// @ts-check
// The one way in which this page makes elements: names and text nodes. Nothing here can turn text into markup.

/**
 * h("button", {class: "quiet", onclick: stop, "aria-label": "Stop"}, "text", node, …). Null children are left out.
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {...any} children
 * @returns {any} the element; which one it is depends on the tag
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "value" || name === "checked" || name === "open") node[name] = value;
  else node.setAttribute(name, value === true ? "" : value);
}

/**
 * An element of the page's frame, which index.html has.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`index.html has no element ${id}`);
  return found;
}

const SVG = "http://www.w3.org/2000/svg";

/** An icon of strokes in a box of 24: our own, so that nothing is loaded. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

const ICONS = {
  send: "M12 19V5M5 12l7-7 7 7",
  stop: "M7 7h10v10H7z",
  attach: "M20 11.5l-8.2 8.2a5 5 0 0 1-7-7l8.5-8.5a3.3 3.3 0 0 1 4.7 4.7l-8.5 8.4a1.6 1.6 0 0 1-2.3-2.3l7.6-7.5",
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  panel: "M4 5h16v14H4zM14.5 5v14",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  retry: "M20 12a8 8 0 1 1-2.5-5.8M20 4v5h-5",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  export: "M12 4v11M7 10l5 5 5-5M5 20h14",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  tool: "M14.5 6.5a4 4 0 0 0-5.2 5.2L4 17l3 3 5.3-5.3a4 4 0 0 0 5.2-5.2L15 12l-3-3z",
  chevron: "M9 6l6 6-6 6",
  down: "M12 5v14M5 12l7 7 7-7",
  brush: "M4 20c3 0 5-1 5-4a2.5 2.5 0 0 0-5 0c0 2-1 3-2 3.500M9.500 14L19 4l1 1-9.500 10",
  file: "M7 3h7l5 5v13H7zM14 3v5h5",
};

/** A button with an icon; `label` is what screen readers and tooltips say. */
export function iconButton(name, label, onclick, attributes = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

/** The clipboard is missing on plain http addresses of the network, and may be refused; the old way still works then. */
async function copyText(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
}

function copyBySelection(text) {
  const area = h("textarea", { value: text, class: "offscreen", "aria-hidden": "true" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A button that copies, and says for a moment that it did. */
export function copyButton(label, textOf) {
  const button = iconButton("copy", label, async () => {
    await copyText(textOf());
    button.replaceChildren(icon("check"));
    button.setAttribute("aria-label", "Copied");
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", label);
    }, 1200);
  });
  return button;
}
