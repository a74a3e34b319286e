// @ts-check
// Colours for code: comments, strings, numbers and keywords, by one expression for each family of languages. No DOM.
//
// It does not parse: what it does not know stays plain. Every expression looks at a character a bounded number of times: one that
// begins with a run of characters begins only where such a run does.

const MAX = 60_000; // characters; longer code stays plain
const words = (list) => `\\b(?:${list.trim().split(/\s+/).join("|")})\\b`;

const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\b`;
const DOUBLE = String.raw`"(?:[^"\\\n]|\\.)*"?`;
const SINGLE = String.raw`'(?:[^'\\\n]|\\.)*'?`;
const BACKTICK = "`(?:[^`\\\\]|\\\\[^])*`?";
const C_COMMENT = String.raw`//[^\n]*|/\*[^]*?(?:\*/|$)`;
const HASH = String.raw`#[^\n]*`;
const C_KEYWORDS = "abstract as async await bool boolean break byte case catch char class const continue default defer delete do double else enum export extends extern final finally float fn for foreach from func function go goto if impl implements import in instanceof int interface internal is let long loop match mod module mut namespace new null nil of operator override package private protected pub public readonly ref return sealed self short signed sizeof static string struct super switch template this throw throws trait try type typedef typeof union unsigned use using var virtual void volatile when where while with yield true false undefined None Some";
const PYTHON_KEYWORDS = "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield True False None self";
const SHELL_KEYWORDS = "if then else elif fi for while until do done case esac function in return exit export local set unset source echo cd sudo";
const SQL_KEYWORDS = "select from where and or not null is in as on join left right inner outer full cross group by order having limit offset insert into values update set delete create table index view drop alter add column primary key foreign references unique default distinct union all case when then else end exists between like begin commit rollback with returning asc desc int integer text varchar boolean timestamp";

/** [expression, names of its groups]: each match is one token, of the kind of the group that matched. */
const family = (parts, flags = "g") => ({ kinds: Object.keys(parts), expression: new RegExp(Object.values(parts).map((part) => `(${part})`).join("|"), flags) });

const FAMILIES = {
  c: family({ comment: C_COMMENT, string: `${DOUBLE}|${SINGLE}`, number: NUMBER, keyword: words(C_KEYWORDS) }),
  js: family({ comment: C_COMMENT, string: `${DOUBLE}|${SINGLE}|${BACKTICK}`, number: NUMBER, keyword: words(C_KEYWORDS) }),
  python: family({ comment: HASH, string: String.raw`[rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$))|[rbfuRBFU]{0,2}(?:${DOUBLE}|${SINGLE})`, number: NUMBER, keyword: words(PYTHON_KEYWORDS), name: String.raw`@[\w.]+` }),
  shell: family({ comment: String.raw`(?<![\w$&])#[^\n]*`, string: `${DOUBLE}|'[^']*'?`, name: String.raw`\$\{?[\w@#?*!]+\}?|(?<=\s)--?[a-zA-Z][\w-]*`, keyword: words(SHELL_KEYWORDS) }),
  json: family({ name: String.raw`"(?:[^"\\\n]|\\.)*"(?=\s{0,9}:)`, string: DOUBLE, number: `-?${NUMBER}`, keyword: words("true false null") }),
  yaml: family({ comment: String.raw`(?<!\S)#[^\n]*`, string: `${DOUBLE}|'(?:[^'\\n]|'')*'?`, name: String.raw`(?<![\w.$/-])[\w.$/-]+(?=:(?:\s|$))`, number: NUMBER, keyword: words("true false null yes no on off") }),
  toml: family({ comment: HASH, string: `${DOUBLE}|${SINGLE}`, name: String.raw`^[ \t]*\[[^\]\n]*\]|^[\w.-]+(?=[ \t]*=)`, number: NUMBER, keyword: words("true false") }, "gm"),
  html: family({ comment: "<!--[^]*?(?:-->|$)", keyword: String.raw`</?[a-zA-Z][\w:-]*|/?>`, name: String.raw`(?<![\w:@-])[\w:@-]+(?==["'])`, string: `${DOUBLE}|${SINGLE}` }),
  css: family({ comment: String.raw`/\*[^]*?(?:\*/|$)`, string: `${DOUBLE}|${SINGLE}`, name: String.raw`(?<![\w-])[\w-]+(?=\s{0,9}:\s)`, number: String.raw`#[\da-fA-F]{3,8}\b|-?\b\d[\d.]*(?:px|r?em|%|vh|vw|s|ms|fr|deg)?`, keyword: String.raw`@[\w-]+` }),
  sql: family({ comment: String.raw`--[^\n]*|/\*[^]*?(?:\*/|$)`, string: "'(?:[^'\\n]|'')*'?", number: NUMBER, keyword: words(SQL_KEYWORDS) }, "gi"),
  diff: family({ keyword: "^@@[^\\n]*", added: "^\\+[^\\n]*", removed: "^-[^\\n]*" }, "gm"),
};

const NAMES = {
  c: "c cpp c++ cc h hpp cs csharp java kotlin kt swift go golang rust rs scala dart php zig proto protobuf",
  js: "js javascript jsx mjs ts typescript tsx",
  python: "py python python3",
  shell: "sh bash shell zsh console shell-session fish dockerfile docker makefile make",
  json: "json jsonc json5 jsonl",
  yaml: "yaml yml",
  toml: "toml ini cfg conf properties env",
  html: "html xml svg vue svelte",
  css: "css scss less",
  sql: "sql sqlite postgres postgresql mysql",
  diff: "diff patch",
};
const FAMILY_OF = new Map(Object.entries(NAMES).flatMap(([name, all]) => all.split(" ").map((each) => [each, FAMILIES[name]])));

/** [{kind, text}] that add up to the code; `kind` is null for plain text. One plain piece for a language that is not known. */
export function highlight(text, language) {
  const found = FAMILY_OF.get(language.toLowerCase());
  if (!found || text.length > MAX) return [{ kind: null, text }];
  const pieces = [];
  let plain = 0;
  for (const match of text.matchAll(found.expression)) {
    if (match[0] === "") continue;
    if (match.index > plain) pieces.push({ kind: null, text: text.slice(plain, match.index) });
    pieces.push({ kind: found.kinds[match.slice(1).findIndex((group) => group !== undefined)], text: match[0] });
    plain = match.index + match[0].length;
  }
  if (plain < text.length) pieces.push({ kind: null, text: text.slice(plain) });
  return pieces;
}
