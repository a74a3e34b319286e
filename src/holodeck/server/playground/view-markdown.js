// @ts-check
// Shows Markdown that may still be streaming. Finished blocks stay; only the last one is rendered again.

import { parseBlocks } from "./blocks.js";
import { copyButton, h } from "./dom.js";
import { highlight } from "./highlight.js";
import { parseInline } from "./inline.js";
import { parseMaths } from "./maths.js";

export class MarkdownView {
  #text = "";
  #settled = 0; // where the last block starts
  /** @type {import("./types.d.ts").ShownBlock | null} */
  #last = null;

  constructor() {
    this.node = h("div", { class: "markdown", dir: "auto" });
  }

  update(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#clear();
    this.#text = text;
    const blocks = parseBlocks(text, this.#settled);
    blocks.forEach((block, i) => this.#show(block, i === 0));
    if (blocks.length > 0) this.#settled = blocks.at(-1).start;
  }

  #clear() {
    this.node.replaceChildren();
    this.#settled = 0;
    this.#last = null;
  }

  #show(block, isFirst) {
    const last = isFirst && this.#last?.start === block.start ? this.#last : null; // the one that continues
    if (block.kind === last?.kind && last?.grow?.(block)) return;
    const made = blockNode(block);
    if (last) last.node.replaceWith(made.node);
    else this.node.append(made.node);
    this.#last = { ...made, kind: block.kind, start: block.start };
  }
}

const BLOCKS = {
  paragraph: (block) => h("p", {}, inlineNodes(block.text)),
  heading: (block) => h(`h${Math.min(6, block.level + 2)}`, {}, inlineNodes(block.text)), // h1 and h2 are the page's own
  rule: () => h("hr"),
  quote: (block) => h("blockquote", {}, block.blocks.map((each) => blockNode(each).node)),
  list: (block) => listNode(block),
  table: (block) => tableNode(block),
  maths: (block) => h("div", { class: "formula", tabindex: "0", role: "group", "aria-label": "Formula" }, mathsNode(block.text, true)),
};

function blockNode(block) {
  return block.kind === "code" ? codeNode(block) : { node: BLOCKS[block.kind](block) };
}

function codeNode(block) {
  const code = h("code");
  const name = h("span", {}, block.language || "text");
  let text = "";
  let isColoured = false;
  const node = h(
    "figure", { class: "code" },
    h("figcaption", {}, name, copyButton("Copy code", () => text)),
    h("pre", { tabindex: "0", "aria-label": "Code" }, code),
  );
  const grow = (next) => {
    if (!next.text.startsWith(text)) return false;
    appendLines(code, next.text.slice(text.length));
    text = next.text;
    name.textContent = next.language || "text";
    if (next.closed && !isColoured) colour(code, text, next.language);
    isColoured = next.closed;
    return true;
  };
  grow(block);
  return { node, grow };
}

const CHUNK = 2000; // characters

/** Adds text in blocks of whole lines: a browser lays out the last of them again, not a thousand lines for each token. */
function appendLines(code, added) {
  let last = code.lastElementChild;
  for (const [i, line] of added.split("\n").entries()) {
    if (i > 0 && last.firstChild.length > CHUNK) last = null;
    else if (i > 0) last.firstChild.appendData("\n");
    if (last === null) code.append((last = h("span", { class: "chunk" }, document.createTextNode(""))));
    last.firstChild.appendData(line);
  }
}

/** Highlights code once it is complete: before that, the end of a string is not known. */
function colour(code, text, language) {
  const pieces = highlight(text, language);
  if (pieces.every(({ kind }) => kind === null)) return;
  let chunk = h("span", { class: "chunk" });
  let length = 0;
  const chunks = [chunk];
  for (const { kind, text: piece } of pieces) {
    for (const [i, line] of piece.split("\n").entries()) {
      if (i > 0 && length > CHUNK) {
        chunks.push((chunk = h("span", { class: "chunk" })));
        length = 0;
      } else if (i > 0) chunk.append("\n");
      if (line !== "") chunk.append(kind === null ? line : h("span", { class: `of-${kind}` }, line));
      length += line.length + 1;
    }
  }
  code.replaceChildren(...chunks);
}

const MATHML = "http://www.w3.org/1998/Math/MathML";

/** A formula as MathML, which browsers draw and screen readers speak; its source where it cannot be read. */
function mathsNode(source, isDisplayed) {
  const tree = parseMaths(source, isDisplayed);
  if (tree === null) return h("code", {}, isDisplayed ? `$$${source}$$` : `$${source}$`);
  const made = mathmlOf(tree);
  made.setAttribute("data-source", source);
  return made;
}

function mathmlOf(part) {
  if (typeof part === "string") return document.createTextNode(part);
  const node = document.createElementNS(MATHML, part.tag);
  for (const [name, value] of Object.entries(part.attributes)) node.setAttribute(name, value);
  node.append(...part.children.map(mathmlOf));
  return node;
}

function listNode(block) {
  const items = block.items.map((item) => {
    const [first, ...rest] = item.blocks;
    const tight = !block.loose && first?.kind === "paragraph";
    const box = item.checked === null ? null : h("input", { type: "checkbox", disabled: true, checked: item.checked, "aria-label": item.checked ? "Done" : "Open" });
    const nodes = tight ? [...inlineNodes(first.text), ...rest.map((each) => blockNode(each).node)] : item.blocks.map((each) => blockNode(each).node);
    return h("li", { class: box ? "task" : null }, box, nodes);
  });
  return h(block.ordered ? "ol" : "ul", { start: block.ordered && block.first !== 1 ? String(block.first) : null }, items);
}

function tableNode({ head, sides, rows }) {
  const row = (tag, cells) => h("tr", {}, cells.map((cell, i) => h(tag, { class: sides[i] ?? "left" }, inlineNodes(cell))));
  const table = h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, rows.map((cells) => row("td", cells))));
  return h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, table);
}

export const inlineNodes = (text) => parseInline(text).map(inlineNode);

function inlineNode(part) {
  if (typeof part === "string") return document.createTextNode(part);
  switch (part.kind) {
    case "break": return h("br");
    case "code": return h("code", {}, part.text);
    case "maths": return mathsNode(part.text, part.isDisplayed);
    case "link": return linkNode(part.href, part.host, part.children.map(inlineNode));
    case "image": return imageNode(part);
    case "unsafe": return h("span", { class: "unsafe" }, part.children.map(inlineNode), h("bdi", { class: "host" }, ` (${part.address})`));
    default: return h(part.kind, {}, part.children.map(inlineNode));
  }
}

function linkNode(href, host, children) {
  const link = h("a", { href, rel: "noopener noreferrer", target: "_blank" }, children);
  const shown = link.textContent; // only a link whose text is its address needs no host beside it: any other text could pretend to be one
  const plain = shown === href || `${shown}/` === href;
  return h("span", { class: "link" }, link, plain ? null : h("bdi", { class: "host" }, ` (${host})`));
}

/** Images are not loaded: their address could send text of the conversation to another server (T25). */
function imageNode({ label, host, href }) {
  const name = [`Image: ${label || "no description"}`];
  return h("span", { class: "image" }, href ? h("a", { href, rel: "noopener noreferrer", target: "_blank" }, name) : name, h("bdi", { class: "host" }, ` (${host}, not loaded)`));
}
