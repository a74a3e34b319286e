import assert from "node:assert/strict";
import test from "node:test";

import { parseBlocks } from "../../../src/holodeck/server/playground/blocks.js";
import { parseInline } from "../../../src/holodeck/server/playground/inline.js";
import { safeLink } from "../../../src/holodeck/server/playground/links.js";

/** A tree as short text: *em*, **strong**, {code}, <text|host>, etc. */
const told = (parts) => parts.map((part) => (typeof part === "string" ? part : NODES[part.kind](part))).join("");
const NODES = {
  em: (n) => `<em>${told(n.children)}</em>`, strong: (n) => `<strong>${told(n.children)}</strong>`, del: (n) => `<del>${told(n.children)}</del>`,
  code: (n) => `<code>${n.text}</code>`, break: () => "<br>", link: (n) => `<a ${n.host}>${told(n.children)}</a>`,
  image: (n) => `<image ${n.host}>${n.label}</image>`, unsafe: (n) => `<unsafe ${n.address}>${told(n.children)}</unsafe>`,
};

const INLINE = [
  ["plain", "plain"],
  ["a **b** c", "a <strong>b</strong> c"],
  ["*a* _b_ __c__", "<em>a</em> <em>b</em> <strong>c</strong>"],
  ["***both***", "<strong><em>both</em></strong>"],
  ["**a *b* c**", "<strong>a <em>b</em> c</strong>"],
  ["snake_case_name 2*3*4", "snake_case_name 2<em>3</em>4"],
  ["2 * 3 * 4", "2 * 3 * 4"],
  ["**open", "**open"],
  ["a ** b", "a ** b"],
  ["~~gone~~ ~one~", "<del>gone</del> ~one~"],
  ["`code` ``a ` b``", "<code>code</code> <code>a ` b</code>"],
  ["`open **bold**", "`open <strong>bold</strong>"],
  ["`*not em*`", "<code>*not em*</code>"],
  ["\\*not\\* \\[x](y)", "*not* [x](y)"],
  ["one\ntwo", "one<br>two"],
  ["a<br>b<br/>c", "a<br>b<br>c"],
  ["[text](https://a.example/x)", "<a a.example>text</a>"],
  ["[**b**](https://a.example)", "<a a.example><strong>b</strong></a>"],
  ["[a](https://a.example/(x)) b", "<a a.example>a</a> b"],
  ["[https://bank.example](https://evil.example)", "<a evil.example>https://bank.example</a>"],
  ["[a [b](https://b.example) c](https://a.example)", "<a a.example>a [b](https://b.example) c</a>"],
  ["see https://a.example/x, and <https://b.example>.", "see <a a.example>https://a.example/x</a>, and <a b.example>https://b.example</a>."],
  ["xhttps://a.example", "xhttps://a.example"],
  ["[x](javascript:alert(1))", "<unsafe javascript:alert(1)>x</unsafe>"],
  ["[x](http://a.example)", "<unsafe http://a.example>x</unsafe>"],
  ["![alt](https://a.example/p.png)", "<image a.example>alt</image>"],
  ["![alt][ref] [ref]", "![alt][ref] [ref]"],
  ["[x] [y](", "[x] [y]("],
  ["<script>x</script>", "<script>x</script>"],
];

for (const [source, expected] of INLINE) test(`inline: ${source}`, () => assert.equal(told(parseInline(source)), expected));

const shape = (blocks) => blocks.map((block) => SHAPES[block.kind](block)).join(" ");
const SHAPES = {
  paragraph: (b) => `p(${b.text})`, heading: (b) => `h${b.level}(${b.text})`, rule: () => "hr", code: (b) => `code[${b.language}](${b.text})${b.closed ? "" : "…"}`,
  quote: (b) => `quote(${shape(b.blocks)})`, table: (b) => `table(${[b.head, ...b.rows].map((row) => row.join(",")).join(";")})`,
  list: (b) => `${b.ordered ? `ol${b.first}` : "ul"}(${b.items.map((item) => (item.checked === null ? "" : item.checked ? "[x]" : "[ ]") + shape(item.blocks)).join("; ")})`,
};

const BLOCKS = [
  ["one\ntwo\n\nthree", "p(one\ntwo) p(three)"],
  ["# A\ntext\n## B ##", "h1(A) p(text) h2(B)"],
  ["#nospace", "p(#nospace)"],
  ["a\n---\nb", "p(a) hr p(b)"],
  ["```js\na\n\nb\n```\nc", "code[js](a\n\nb) p(c)"],
  ["```\nopen", "code[](open)…"],
  ["~~~\n```\n~~~", "code[](```)"],
  ["- a\n- b\n\n- c", "ul(p(a); p(b); p(c))"],
  ["- a\n  - b\n    more\n- c", "ul(p(a) ul(p(b\nmore)); p(c))"],
  ["3. a\n4. b", "ol3(p(a); p(b))"],
  ["1. a\n   ```\n   x\n   ```\n2. b", "ol1(p(a) code[](x); p(b))"],
  ["- [ ] a\n- [x] b", "ul([ ]p(a); [x]p(b))"],
  ["text\n- a", "p(text) ul(p(a))"],
  ["in 2024\n1999. no list", "p(in 2024\n1999. no list)"],
  ["> a\nb\n\nc", "quote(p(a\nb)) p(c)"],
  ["> > deep", "quote(quote(p(deep)))"],
  ["| a | b |\n|---|:-:|\n| 1 | 2 |\nend", "table(a,b;1,2) p(end)"],
  ["a | b\nno table", "p(a | b\nno table)"],
  ["- a\n\nb", "ul(p(a)) p(b)"],
  ["", ""],
];

for (const [source, expected] of BLOCKS) test(`blocks: ${JSON.stringify(source)}`, () => assert.equal(shape(parseBlocks(source)), expected));

test("text that comes in pieces ends in the blocks of the whole", () => {
  const whole = BLOCKS.map(([source]) => source).join("\n\n");
  for (const size of [1, 3, 17]) {
    let settled = 0;
    const kept = [];
    for (let end = size; end < whole.length + size; end += size) {
      const found = parseBlocks(whole.slice(0, end), settled);
      while (kept.length > 0 && kept.at(-1).start >= settled) kept.pop();
      kept.push(...found);
      settled = found.at(-1)?.start ?? settled;
    }
    assert.equal(shape(kept), shape(parseBlocks(whole)));
  }
});

test("nothing takes more than linear time", () => {
  for (const unit of ["*", "_", "[", "![", "`", "> ", "- ", "|a", "[x](", "<", "**a", "a*", "```\n", "https://a.", "(", "~~", "\\", "1. ", "[a](b"]) {
    const started = performance.now();
    for (const block of parseBlocks(unit.repeat(30_000 / unit.length))) if (block.text !== undefined) parseInline(block.text);
    assert.ok(performance.now() - started < 1500, `${unit}: ${performance.now() - started} ms`);
  }
});

const SAFE = ["https://a.example", "https://a.example:8443/x?y#z", "HTTPS://A.example/", "https://xn--bcher-kva.example/"];
const UNSAFE = [
  "http://a.example", "//a.example", "javascript:1", "https:a.example", "https://user@a.example", "https://u:p@a.example", "https://a.example\u202e/x", "https://a\\b",
  " https://a.example", "https://", "data:text/html,x", "https://a.example/\u200b", `https://a.example/${"x".repeat(3000)}`, "",
];
for (const address of SAFE) test(`a link: ${address}`, () => assert.ok(safeLink(address)));
for (const address of UNSAFE) test(`no link: ${address.slice(0, 40)}`, () => assert.equal(safeLink(address), null));
