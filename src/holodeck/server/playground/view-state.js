// @ts-check
// The state that agent and page share: the JSON as a tree of lines, what changed last marked in it and listed above.

import { h } from "./dom.js";
import { pointerOf } from "./patch.js";

const MAX_LINES = 1500;

export class StateView {
  constructor() {
    this.changes = h("ul", { class: "changes", "aria-label": "Last change" });
    this.tree = h("pre", { class: "state-tree", tabindex: "0", "aria-label": "State" });
    this.none = h("p", { class: "quiet" }, "This agent shares no state. Add state: to its file to see it here, live.");
    this.node = h("div", { class: "state" }, this.none, this.changes, this.tree);
  }

  update({ state, changes }) {
    const isEmpty = state === null || state === undefined;
    this.none.hidden = !isEmpty;
    this.tree.hidden = isEmpty;
    const marks = new Map(changes.map((change) => [change.path, change.kind]));
    this.changes.hidden = changes.length === 0;
    this.changes.replaceChildren(...changes.slice(0, 30).map(changeNode));
    this.tree.replaceChildren(...(isEmpty ? [] : lines(state).map(({ text, path }) => h("span", { class: `line ${markOf(marks, path)}` }, `${text}\n`))));
  }
}

/** A line belongs to a change if it is the changed place or lies below it. */
function markOf(marks, path) {
  for (let at = path; ; at = at.slice(0, at.lastIndexOf("/"))) {
    if (marks.has(at)) return marks.get(at);
    if (at === "" || !at.includes("/")) return "";
  }
}

function changeNode({ path, kind, before, after }) {
  const sides = { added: [null, after], removed: [before, null], changed: [before, after] }[kind];
  const [old, now] = sides.map((value) => (value === null || value === undefined ? null : short(value)));
  return h("li", { class: kind }, h("span", { class: "path" }, path || "/"), old === null ? null : h("del", {}, old), now === null ? null : h("ins", {}, now));
}

const short = (value) => {
  const text = JSON.stringify(value) ?? "null";
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
};

/** Pretty JSON, each line with the JSON Pointer of what it shows. */
export function lines(value, keys = [], indent = "", name = "", isLast = true, found = []) {
  if (found.length > MAX_LINES) return found;
  const label = name === "" ? "" : `${JSON.stringify(name)}: `;
  const comma = isLast ? "" : ",";
  const path = pointerOf(keys);
  if (value === null || typeof value !== "object" || Object.keys(value).length === 0) {
    found.push({ text: `${indent}${label}${JSON.stringify(value)}${comma}`, path });
    return found;
  }
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  found.push({ text: `${indent}${label}${open}`, path });
  const entries = Object.entries(value);
  entries.forEach(([key, item], i) => lines(item, [...keys, key], `${indent}  `, Array.isArray(value) ? "" : key, i === entries.length - 1, found));
  found.push({ text: `${indent}${close}${comma}`, path });
  return found;
}
