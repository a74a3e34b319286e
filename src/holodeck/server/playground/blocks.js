// @ts-check
// Markdown blocks, as a tree. No DOM. Each block has its start, so that a view can keep the finished blocks
// and parse only the last one again while text is still streaming.

const MAX_DEPTH = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|\t|$)(.*)$/;
const TASK = /^\[([ xX])\] +/;
const DELIMITER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const MATHS = /^ {0,3}(\$\$|\\\[)(.*)$/;
const MAX_COLUMNS = 60;
const MAX_FORMULA_LINES = 60;

/** The blocks of `text` from the offset `from` on. */
export function parseBlocks(text, from = 0, depth = 0) {
  const lines = new Lines(text, from);
  const found = [];
  while (!lines.done) {
    const start = lines.offset;
    if (isBlank(lines.line)) lines.next();
    else found.push({ start, ...block(lines, depth) });
  }
  return found;
}

class Lines {
  constructor(text, from) {
    this.text = text;
    this.offset = from;
    this.#read();
  }

  #read() {
    this.done = this.offset >= this.text.length;
    const end = this.text.indexOf("\n", this.offset);
    this.end = end < 0 ? this.text.length : end;
    this.line = this.done ? "" : this.text.slice(this.offset, this.end).replace(/\r$/, "");
  }

  next() {
    const { line } = this;
    this.offset = this.end + 1;
    this.#read();
    return line;
  }

  /** The line after this one, without going there. */
  peek() {
    if (this.end >= this.text.length) return "";
    const end = this.text.indexOf("\n", this.end + 1);
    return this.text.slice(this.end + 1, end < 0 ? this.text.length : end);
  }
}

const isBlank = (line) => line.trim() === "";

function block(lines, depth) {
  const { line } = lines;
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    lines.next();
    return { kind: "heading", level: heading[1].length, text: heading[2] ?? "" };
  }
  if (RULE.test(line)) {
    lines.next();
    return { kind: "rule" };
  }
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, depth);
  if (line.includes("|") && DELIMITER.test(lines.peek())) return table(lines);
  const maths = MATHS.exec(line);
  return (maths && formula(lines, maths)) ?? paragraph(lines);
}

/** @param {any} lines @param {string[]} match */
function fenced(lines, [, fence, info]) {
  const close = new RegExp(`^ {0,3}${fence[0] === "`" ? "`" : "~"}{${fence.length},}\\s*$`);
  lines.next();
  const body = [];
  let closed = false;
  while (!lines.done && !closed) {
    closed = close.test(lines.line);
    const line = lines.next();
    if (!closed) body.push(line);
  }
  return { kind: "code", language: info.trim().split(/\s+/)[0], text: body.join("\n"), closed };
}

/** A formula on lines of its own; null while it is incomplete. */
function formula(lines, /** @type {string[]} */ [, open]) {
  const close = open === "$$" ? "$$" : "\\]";
  const start = lines.text.indexOf(open, lines.offset) + open.length;
  const end = lines.text.indexOf(close, start);
  if (end < 0) return null;
  const text = lines.text.slice(start, end);
  const lineEnd = lines.text.indexOf("\n", end);
  const rest = lines.text.slice(end + close.length, lineEnd < 0 ? undefined : lineEnd);
  const count = text.split("\n").length;
  if (rest.trim() !== "" || count > MAX_FORMULA_LINES || /\n\s*\n/.test(text)) return null;
  for (let i = 0; i < count; i += 1) lines.next();
  return { kind: "maths", text: text.trim() };
}

function quote(lines, depth) {
  const body = [];
  while (!lines.done && !isBlank(lines.line) && (QUOTE.test(lines.line) || !interrupts(lines.line))) {
    body.push(lines.next().replace(QUOTE, ""));
  }
  return { kind: "quote", blocks: parseBlocks(body.join("\n"), 0, depth + 1) };
}

function list(lines, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines.line));
  const ordered = /\d/.test(first[2]);
  const items = [];
  let loose = false;
  while (!lines.done) {
    const item = ITEM.exec(lines.line);
    if (!item || /\d/.test(item[2]) !== ordered || RULE.test(lines.line)) break;
    const { body, blank } = itemBody(lines, item);
    const task = TASK.exec(body);
    items.push({ checked: task ? task[1] !== " " : null, blocks: parseBlocks(task ? body.slice(task[0].length) : body, 0, depth + 1) });
    loose ||= blank && !lines.done && ITEM.test(lines.line);
  }
  return { kind: "list", ordered, first: ordered ? Number.parseInt(first[2], 10) : 1, loose, items };
}

/** The lines of an item: indented ones, and those that continue its paragraph. */
function itemBody(lines, /** @type {string[]} */ [, indent, marker, space, text]) {
  const width = indent.length + marker.length + Math.max(1, space.length);
  const inner = new RegExp(`^(?: {${Math.min(2, width)},${width}}|\\t)`);
  const body = [text];
  let blank = false;
  lines.next();
  while (!lines.done) {
    const { line } = lines;
    const indented = inner.test(line);
    if (isBlank(line)) {
      blank = true;
      if (!inner.test(lines.peek()) && !isBlank(lines.peek())) {
        lines.next();
        break;
      }
      body.push("");
    } else if (indented) body.push(line.replace(inner, ""));
    else if (!blank && !interrupts(line)) body.push(line);
    else break;
    lines.next();
  }
  return { body: body.join("\n"), blank };
}

const interrupts = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

function table(lines) {
  const head = cells(lines.next());
  const sides = cells(lines.next()).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
  const rows = [];
  while (!lines.done && !isBlank(lines.line) && lines.line.includes("|")) rows.push(cells(lines.next()).slice(0, head.length));
  return { kind: "table", head, sides, rows };
}

function cells(line) {
  const trimmed = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return trimmed.split(/(?<!\\)\|/).slice(0, MAX_COLUMNS).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines) {
  const body = [lines.next()];
  while (!lines.done && !isBlank(lines.line) && !interruptsParagraph(lines)) body.push(lines.next());
  return { kind: "paragraph", text: body.map((line) => line.trim()).join("\n") };
}

function interruptsParagraph(lines) {
  const { line } = lines;
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  if (item) return item[4] !== "" && (/[-*+]/.test(item[2]) || Number.parseInt(item[2], 10) === 1);
  return line.includes("|") && DELIMITER.test(lines.peek());
}
