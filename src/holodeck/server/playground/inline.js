// @ts-check
// Markdown inside a line, as a tree: strings, {kind, children} and {kind, text}. No DOM, no HTML, linear time.
//
// Images are never more than a name and a host, and there is no link inside a link. References ([a][b], [b]: …) stay the text that they are.

import { nameOf, safeLink } from "./links.js";

const MAX_OPEN = 16;
const MAX_DESTINATION = 1000;
const MAX_FORMULA = 1000;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const KINDS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };
const BARE = /https:\/\/[^\s<>"'`\\]+/y;
const BREAK = /<br\s{0,3}\/?>/iy;
const SPECIAL = /[\\`*_~![<&$h\n]/g;
const ENTITY = /&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([a-zA-Z]{2,8}));/y;
const ENTITIES = { __proto__: null, amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", ndash: "–", mdash: "—", hellip: "…", copy: "©", times: "×", deg: "°", euro: "€", rarr: "→", larr: "←", middot: "·", bull: "•", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”" };

export function parseInline(text) {
  return new Inline(text, true).parse();
}

class Inline {
  /** @type {Map<number, number> | null} */
  brackets = null;

  constructor(text, mayLink) {
    this.text = text;
    this.mayLink = mayLink;
    /** @type {{marker: string, children: import("./types.d.ts").InlinePart[]}[]} */
    this.frames = [{ marker: "", children: [] }]; // the last is the innermost; the first stays
    this.plain = 0; // where the text begins that is not emitted yet
    this.missing = new Set(); // lengths of backtick runs that have no partner
    this.paren = -1; // the next ) that is known
  }

  get #innermost() {
    return this.frames[this.frames.length - 1];
  }

  parse() {
    const { text } = this;
    let i = 0;
    while (i < text.length) {
      SPECIAL.lastIndex = i;
      const found = SPECIAL.exec(text);
      if (!found) break;
      i = this.#special(found.index, text[found.index]);
    }
    this.#putText(text.length);
    while (this.frames.length > 1) this.#unwind();
    return this.frames[0].children;
  }

  #special(i, character) {
    switch (character) {
      case "\\": return this.#escape(i);
      case "`": return this.#code(i);
      case "!": return this.text[i + 1] === "[" ? this.#bracket(i, i + 1, true) : i + 1;
      case "[": return this.#bracket(i, i, false);
      case "<": return this.#angle(i);
      case "&": return this.#entity(i);
      case "$": return this.#formula(i);
      case "h": return this.#bare(i);
      case "\n": return this.#put(i, i + 1, { kind: "break" });
      default: return this.#emphasis(i, character);
    }
  }

  /** Emits the text before `start`, then `node`, and continues at `end`. */
  #put(start, end, node) {
    this.#putText(start);
    this.#innermost.children.push(node);
    this.plain = end;
    return end;
  }

  #putText(end) {
    if (end > this.plain) this.#innermost.children.push(this.text.slice(this.plain, end));
    this.plain = end;
  }

  #escape(i) {
    const next = this.text[i + 1] ?? "";
    if (next === "\n") return this.#put(i, i + 2, { kind: "break" });
    if (next === "(" || next === "[") {
      const end = this.#near(i + 2, next === "(" ? "\\)" : "\\]");
      if (end > 0) return this.#put(i, end + 2, { kind: "maths", text: this.text.slice(i + 2, end), isDisplayed: next === "[" });
    }
    if (!PUNCTUATION.test(next)) return i + 1;
    this.#putText(i);
    this.plain = i + 1;
    return i + 2;
  }

  #code(i) {
    const length = runLength(this.text, i, "`");
    const start = i + length;
    const end = this.missing.has(length) ? -1 : this.#closing(start, length);
    if (end < 0) {
      this.missing.add(length);
      return start;
    }
    const inner = this.text.slice(start, end).replaceAll("\n", " ");
    const padded = inner.length > 2 && inner[0] === " " && inner.at(-1) === " " && inner.trim() !== "";
    return this.#put(i, end + length, { kind: "code", text: padded ? inner.slice(1, -1) : inner });
  }

  #closing(from, length) {
    let i = this.text.indexOf("`", from);
    while (i >= 0) {
      const found = runLength(this.text, i, "`");
      if (found === length) return i;
      i = this.text.indexOf("`", i + found);
    }
    return -1;
  }

  #bracket(start, open, isImage) {
    const close = this.#partner(open);
    if (close === undefined || this.text[close + 1] !== "(") return open + 1;
    const destination = this.#isClosed(close + 2) && destinationAt(this.text, close + 2);
    if (!destination) return open + 1;
    const label = this.text.slice(open + 1, close);
    if (isImage) return this.#put(start, destination.end, image(label, destination.address, this.mayLink));
    if (!this.mayLink) return open + 1;
    return this.#put(start, destination.end, link(new Inline(label, false).parse(), destination.address));
  }

  /** Whether a ) follows at all: looked for once for all the ( before it. */
  #isClosed(from) {
    if (this.paren < from) this.paren = this.text.indexOf(")", from);
    if (this.paren < 0) this.paren = Infinity;
    return this.paren - from < MAX_DESTINATION;
  }

  #partner(open) {
    if (!this.brackets) this.brackets = partners(this.text);
    return this.brackets.get(open);
  }

  #angle(i) {
    BREAK.lastIndex = i;
    const lineBreak = BREAK.exec(this.text);
    if (lineBreak) return this.#put(i, i + lineBreak[0].length, { kind: "break" });
    if (!this.mayLink || !this.text.startsWith("<https://", i)) return i + 1;
    const end = this.text.slice(i, i + MAX_DESTINATION).indexOf(">");
    const address = end < 0 ? "" : this.text.slice(i + 1, i + end);
    return safeLink(address) ? this.#put(i, i + end + 1, link([address], address)) : i + 1;
  }

  /** As in pandoc: no space inside the dollars, no digit after them. So $5 and $10 are amounts. */
  #formula(i) {
    const isDisplayed = this.text[i + 1] === "$";
    const mark = isDisplayed ? "$$" : "$";
    const start = i + mark.length;
    const end = this.#near(start, mark);
    const isFormula = end > start && (isDisplayed || (!/\s/.test(this.text[start]) && !/\s/.test(this.text[end - 1]) && !/\d/.test(this.text[end + 1] ?? "")));
    if (!isFormula) return i + mark.length;
    return this.#put(i, end + mark.length, { kind: "maths", text: this.text.slice(start, end), isDisplayed });
  }

  /** The position of the next `mark` within the allowed distance; -1 if there is none. */
  #near(from, mark) {
    const end = this.text.slice(from, from + MAX_FORMULA).indexOf(mark);
    return end < 0 ? -1 : from + end;
  }

  /** An entity is a character, as text: it cannot begin markup. */
  #entity(i) {
    ENTITY.lastIndex = i;
    const [whole, decimal, hexadecimal, name] = ENTITY.exec(this.text) ?? [""];
    const code = decimal ? Number(decimal) : hexadecimal ? Number.parseInt(hexadecimal, 16) : null;
    const isShown = code !== null && code >= 32 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) && !(code >= 127 && code < 160);
    const character = isShown ? String.fromCodePoint(code) : ENTITIES[name];
    return character === undefined ? i + 1 : this.#put(i, i + whole.length, character);
  }

  #bare(i) {
    if (!this.mayLink || (i > 0 && /[\w/]/.test(this.text[i - 1]))) return i + 1;
    BARE.lastIndex = i;
    const found = BARE.exec(this.text)?.[0].slice(0, MAX_DESTINATION).replace(/[.,;:!?*_~)\]}]+$/, "");
    return found && safeLink(found) ? this.#put(i, i + found.length, link([found], found)) : i + 1;
  }

  #emphasis(i, character) {
    const run = runLength(this.text, i, character);
    const before = this.text[i - 1] ?? " ";
    const after = this.text[i + run] ?? " ";
    let opens = !/\s/.test(after);
    let closes = !/\s/.test(before);
    if (character === "_") [opens, closes] = [opens && !/\w/.test(before), closes && !/\w/.test(after)];
    const end = i + run;
    for (let at = i; at < end; ) {
      const marker = this.#marker(character, end - at, closes);
      if (!marker) return end;
      if (!(closes && this.#close(at, marker)) && !(opens && this.#open(at, marker))) return end;
      at += marker.length;
    }
    return end;
  }

  #marker(character, left, closes) {
    if (character === "~") return left >= 2 ? "~~" : null;
    const closesOne = closes && this.#innermost.marker === character;
    return left >= 2 && !(left >= 3 && closesOne) ? character + character : character;
  }

  #open(i, marker) {
    if (this.frames.length > MAX_OPEN) return false;
    this.#putText(i);
    this.frames.push({ marker, children: [] });
    this.plain = i + marker.length;
    return true;
  }

  #close(i, marker) {
    if (!this.frames.some((frame) => frame.marker === marker)) return false;
    this.#putText(i);
    while (this.#innermost.marker !== marker) this.#unwind();
    const { children } = this.#innermost;
    this.frames.pop();
    this.#innermost.children.push({ kind: KINDS[marker], children });
    this.plain = i + marker.length;
    return true;
  }

  /** A marker without a partner is text. */
  #unwind() {
    const { marker, children } = this.#innermost;
    this.frames.pop();
    this.#innermost.children.push(marker, ...children);
  }
}

function runLength(text, i, character) {
  let end = i;
  while (text[end] === character) end += 1;
  return end - i;
}

function partners(text) {
  const found = new Map();
  const open = [];
  for (let i = 0; i < text.length; i += 1) {
    if (text[i] === "\\") i += 1;
    else if (text[i] === "[") open.push(i);
    else if (text[i] === "]" && open.length > 0) found.set(open.pop(), i);
  }
  return found;
}

/** The address between ( and ), and where it ends; a title behind the address is dropped. */
function destinationAt(text, start) {
  let depth = 0;
  for (let i = start; i < text.length && i - start < MAX_DESTINATION; i += 1) {
    const character = text[i];
    if (character === "\n") return null;
    if (character === "(") depth += 1;
    if (character === ")" && depth-- === 0) {
      const address = text.slice(start, i).trim().replace(/\s+["'(].*$/s, "");
      return { address: address.replace(/^<(.*)>$/, "$1"), end: i + 1 };
    }
  }
  return null;
}

function link(children, address) {
  const safe = safeLink(address);
  return safe ? { kind: "link", children, ...safe } : { kind: "unsafe", children, address };
}

function image(label, address, mayLink) {
  const safe = mayLink ? safeLink(address) : null;
  return { kind: "image", label, host: nameOf(address), ...(safe ? { href: safe.href } : {}) };
}
