import assert from "node:assert/strict";
import test from "node:test";

import { parseBlocks } from "../../../src/holodeck/server/playground/blocks.js";
import { highlight } from "../../../src/holodeck/server/playground/highlight.js";
import { parseInline } from "../../../src/holodeck/server/playground/inline.js";
import { parseMaths } from "../../../src/holodeck/server/playground/maths.js";

const kinds = (text, language) => highlight(text, language).filter(({ kind }) => kind !== null).map(({ kind, text: piece }) => `${kind}:${piece}`);
const CODE = [
  ["python", 'def f(x):  # why\n    return "a#b" + 1_0', ["keyword:def", "comment:# why", "keyword:return", 'string:"a#b"', "number:1_0"]],
  ["py", '"""doc\nif"""\nx', ['string:"""doc\nif"""']],
  ["ts", "const a = `x ${1}`; // if", ["keyword:const", "string:`x ${1}`", "comment:// if"]],
  ["json", '{"a": [1, true, "b"]}', ['name:"a"', "number:1", "keyword:true", 'string:"b"']],
  ["yaml", "name: x # no\nurl: a#b", ["name:name", "comment:# no", "name:url"]],
  ["bash", 'echo "$HOME" --flag # end', ["keyword:echo", 'string:"$HOME"', "name:--flag", "comment:# end"]],
  ["sql", "SELECT 'it''s' FROM t -- x", ["keyword:SELECT", "string:'it''s'", "keyword:FROM", "comment:-- x"]],
  ["html", '<a href="x">if</a>', ["keyword:<a", "name:href", 'string:"x"', "keyword:>", "keyword:</a", "keyword:>"]],
  ["diff", "@@ -1 @@\n-old\n+new", ["keyword:@@ -1 @@", "removed:-old", "added:+new"]],
  ["brainfuck", "if 1", []],
  ["__proto__", "if 1", []],
];
for (const [language, text, expected] of CODE) {
  test(`code in ${language}`, () => {
    assert.deepEqual(kinds(text, language), expected);
    assert.equal(highlight(text, language).map((piece) => piece.text).join(""), text);
  });
}

test("hostile code takes no time and loses nothing", () => {
  for (const language of ["js", "python", "yaml", "html", "shell", "css", "sql", "toml", "diff", "json", "c"]) {
    for (const seed of ['"', "'", "`", "/*", "<!--", "#", "\\", '"\\', "$", "a:", "-", " ", "'''", "1e", "[", "@a.", "a", "a-", "\n ", `="`]) {
      const text = seed.repeat(Math.floor(60_000 / seed.length));
      const begun = process.cpuUsage().user;
      assert.equal(highlight(text, language).map((piece) => piece.text).join(""), text);
      assert.ok(process.cpuUsage().user - begun < 2_000_000, `${language} ${seed}`);
    }
  }
});

const shown = (part) => (typeof part === "string" ? part : `${part.tag}(${part.children.map(shown).join(" ")})`);
const tex = (source) => {
  const tree = parseMaths(source, false);
  return tree === null ? null : tree.children[0].children.map(shown).join(" ");
};
const FORMULAS = [
  ["x^2", "msup(mi(x) mn(2))"],
  ["a_{ij}^2", "msubsup(mi(a) mrow(mi(i) mi(j)) mn(2))"],
  ["\\frac{1}{2}", "mfrac(mn(1) mn(2))"],
  ["\\sqrt[3]{x}", "mroot(mi(x) mrow(mn(3)))"],
  ["\\sum_{i=1}^n i", "munderover(mo(∑) mrow(mi(i) mo(=) mn(1)) mi(n)) mi(i)"],
  ["\\int_0^1", "msubsup(mo(∫) mn(0) mn(1))"],
  ["\\alpha \\leq \\text{a b}", "mi(α) mo(≤) mtext(a b)"],
  ["\\left( x \\right.", "mrow(mo(() mi(x))"],
  ["\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", "mrow(mo(() mtable(mtr(mtd(mn(1)) mtd(mn(2))) mtr(mtd(mn(3)) mtd(mn(4)))) mo()))"],
  ["f'(x)", "msup(mi(f) mo(′)) mo(() mi(x) mo())"],
  ["\\unknown{x}", "mtext(\\unknown) mi(x)"],
  ["x \\in \\mathbb{R}", "mi(x) mo(∈) mi(ℝ)"],
  ["\\hat{y}", "mover(mi(y) mo(^))"],
  ["\\constructor", "mtext(\\constructor)"],
];
for (const [source, expected] of FORMULAS) test(`formula ${source}`, () => assert.equal(tex(source), expected));

for (const source of ["\\frac{1}", "{x", "x}", "\\begin{nothing}", "\\left(", "x^", "{".repeat(100) + "}".repeat(100), "x+".repeat(9_000), "&", "\\end{a}"]) {
  test(`no formula ${source.slice(0, 20)}`, () => assert.equal(parseMaths(source, false), null));
}

const maths = (text) => parseInline(text).filter((part) => part.kind === "maths").map((part) => part.text);
test("formulas in a line, and amounts that are none", () => {
  assert.deepEqual(maths("so $x^2$ and \\(y\\), $$z$$"), ["x^2", "y", "z"]);
  for (const text of ["It costs $5 and $10.", "$ 5$", "5$ or 6$", "a $x", "\\$x$ y", "`$x$`"]) assert.deepEqual(maths(text), [], text);
});

test("formulas on lines of their own", () => {
  assert.deepEqual(parseBlocks("before\n\n$$\nx = 1\n$$\n\nafter").map((block) => block.kind), ["paragraph", "maths", "paragraph"]);
  assert.deepEqual(parseBlocks("\\[ a + b \\]").map((block) => [block.kind, block.text]), [["maths", "a + b"]]);
  assert.deepEqual(parseBlocks("$$ x").map((block) => block.kind), ["paragraph"]);
  assert.deepEqual(parseBlocks("$$\n\n$$ money").map((block) => block.kind), ["paragraph", "paragraph"]);
});
