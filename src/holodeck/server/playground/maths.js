// @ts-check
// Formulas in TeX → a tree of MathML elements: {tag, attributes, children} with texts as leaves. No DOM.
//
// The part of TeX that answers of models use. An unknown command is shown as its name; nothing is executed.

const MAX_DEPTH = 40;
const MAX_NODES = 4_000;
const table = (text) => Object.fromEntries(text.trim().split(/\s+/).map((each) => each.split("=")));

const LETTERS = table("alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π rho=ρ sigma=σ tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Phi=Φ Psi=Ψ Omega=Ω infty=∞ partial=∂ nabla=∇ hbar=ℏ ell=ℓ Re=ℜ Im=ℑ emptyset=∅ varnothing=∅ aleph=ℵ");
const OPERATORS = table("cdot=⋅ times=× div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=• leq=≤ le=≤ geq=≥ ge=≥ neq=≠ ne=≠ ll=≪ gg=≫ approx=≈ sim=∼ simeq=≃ cong=≅ equiv=≡ propto=∝ to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ implies=⟹ Leftarrow=⇐ Leftrightarrow=⇔ iff=⟺ mapsto=↦ in=∈ notin=∉ ni=∋ subset=⊂ subseteq=⊆ supset=⊃ supseteq=⊇ cup=∪ cap=∩ setminus=∖ forall=∀ exists=∃ neg=¬ lnot=¬ land=∧ wedge=∧ lor=∨ vee=∨ oplus=⊕ otimes=⊗ perp=⊥ parallel=∥ mid=∣ angle=∠ ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ prime=′ colon=: therefore=∴ because=∵");
const BIG = table("sum=∑ prod=∏ coprod=∐ int=∫ iint=∬ iiint=∭ oint=∮ bigcup=⋃ bigcap=⋂");
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp det dim ker deg gcd max min sup inf lim arg Pr mod".split(" "));
const ACCENTS = table("hat=^ widehat=^ bar=‾ overline=‾ vec=→ tilde=~ widetilde=~ dot=˙ ddot=¨");
const SPACES = { __proto__: null, ",": "0.17em", ":": "0.22em", ";": "0.28em", " ": "0.28em", "!": "0em", quad: "1em", qquad: "2em" };
const STYLES = { __proto__: null, mathbf: "bold", boldsymbol: "bold", bm: "bold", mathcal: "script", mathscr: "script", mathrm: "upright", mathit: "italic", operatorname: "upright" };
const DOUBLE_STRUCK = { __proto__: null, C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" };
const FIRST_DOUBLE_STRUCK = 0x1d538;
const TEXTS = new Set(["text", "textrm", "textbf", "textit", "mbox"]);
const FENCES = { __proto__: null, matrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"], cases: ["{", ""], aligned: ["", ""], align: ["", ""], "align*": ["", ""], array: ["", ""], gathered: ["", ""] };
const TOKEN = /\\(?:[a-zA-Z]+\*?|[^])|\d+(?:\.\d+)?|\s+|[^]/gy;

/** The tree of a formula, or null for one that is too large or not closed: then its source is shown. */
export function parseMaths(source, isDisplayed) {
  try {
    const parser = new Parser(source);
    const children = parser.row(() => false);
    if (!parser.isDone) return null;
    return node("math", [node("mrow", children)], isDisplayed ? { display: "block" } : {});
  } catch (error) {
    if (error instanceof Unreadable) return null;
    throw error;
  }
}

class Unreadable extends Error {}

/** @returns {import("./types.d.ts").MathsNode} */
const node = (tag, children, attributes = {}) => ({ tag, attributes, children });

class Parser {
  #at = 0;
  #depth = 0;
  #made = 0;

  constructor(source) {
    this.tokens = source.match(TOKEN) ?? [];
  }

  get isDone() {
    return this.#at >= this.tokens.length;
  }

  get #next() {
    return this.tokens[this.#at];
  }

  #take() {
    if (this.isDone) throw new Unreadable();
    return this.tokens[this.#at++];
  }

  #skipSpace() {
    while (/^\s/.test(this.#next ?? "")) this.#at += 1;
  }

  /** Everything up to the token that ends it, which is not taken. */
  row(isEnd) {
    if ((this.#depth += 1) > MAX_DEPTH) throw new Unreadable();
    const found = [];
    for (this.#skipSpace(); !this.isDone && !isEnd(this.#next); this.#skipSpace()) {
      if (this.#next === "}" || this.#next === "&") throw new Unreadable();
      found.push(this.#scripted());
    }
    this.#depth -= 1;
    return found;
  }

  /** One thing with what is written above and below it. */
  #scripted() {
    const base = this.#atom();
    const scripts = {};
    for (this.#skipSpace(); this.#next === "^" || this.#next === "_" || this.#next === "'"; this.#skipSpace()) {
      const mark = this.#take();
      if (mark === "'") scripts["^"] = node("mo", ["′"]);
      else scripts[mark] = this.#argument();
    }
    const { "^": above, _: below } = scripts;
    if (!above && !below) return base;
    const isBig = base.isBig === true;
    if (above && below) return node(isBig ? "munderover" : "msubsup", [base, below, above]);
    return above ? node(isBig ? "mover" : "msup", [base, above]) : node(isBig ? "munder" : "msub", [base, below]);
  }

  /** A group in braces, or the next single thing. */
  #argument() {
    this.#skipSpace();
    if (this.#next !== "{") return this.#atom();
    this.#take();
    const inner = this.row((token) => token === "}");
    this.#take();
    return inner.length === 1 ? inner[0] : node("mrow", inner);
  }

  #atom() {
    if ((this.#made += 1) > MAX_NODES) throw new Unreadable();
    this.#skipSpace();
    if (this.#next === "{") return this.#argument();
    const token = this.#take();
    if (token.startsWith("\\")) return this.#command(token.slice(1));
    if (/^\d/.test(token)) return node("mn", [token]);
    if (/^\p{L}/u.test(token)) return node("mi", [token]);
    return node("mo", [token === "-" ? "−" : token]);
  }

  #command(name) {
    if (Object.hasOwn(LETTERS, name)) return node("mi", [LETTERS[name]]);
    if (Object.hasOwn(OPERATORS, name)) return node("mo", [OPERATORS[name]]);
    if (Object.hasOwn(BIG, name)) return { ...node("mo", [BIG[name]]), isBig: !name.includes("int") };
    if (FUNCTIONS.has(name)) return { ...node("mi", [name]), isBig: ["lim", "max", "min", "sup", "inf"].includes(name) };
    if (SPACES[name]) return node("mspace", [], { width: SPACES[name] });
    if (TEXTS.has(name)) return node("mtext", [this.#raw()]);
    if (STYLES[name]) return node("mrow", [this.#argument()], { class: `maths-${STYLES[name]}` });
    if (name === "mathbb") return node("mi", [[...this.#raw()].map(doubleStruck).join("")]);
    if (Object.hasOwn(ACCENTS, name)) return node("mover", [this.#argument(), node("mo", [ACCENTS[name]])], { accent: "true" });
    return this.#construct(name);
  }

  #construct(name) {
    if (name === "frac" || name === "dfrac" || name === "tfrac") return node("mfrac", [this.#argument(), this.#argument()]);
    if (name === "binom") return node("mrow", [node("mo", ["("]), node("mfrac", [this.#argument(), this.#argument()], { linethickness: "0" }), node("mo", [")"])]);
    if (name === "sqrt") return this.#root();
    if (name === "left") return this.#fenced();
    if (name === "begin") return this.#environment();
    if (name === "underline") return node("munder", [this.#argument(), node("mo", ["_"])]);
    if (name === "right" || name === "end" || name === "\\") throw new Unreadable();
    if (/^[{}%$#&_|]$/.test(name)) return node("mo", [name === "|" ? "‖" : name]);
    if (["displaystyle", "textstyle", "limits", "nolimits", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr"].includes(name)) return node("mrow", []);
    return node("mtext", [`\\${name}`]);
  }

  #root() {
    this.#skipSpace();
    if (this.#next !== "[") return node("msqrt", [this.#argument()]);
    this.#take();
    const index = this.row((token) => token === "]");
    this.#take();
    return node("mroot", [this.#argument(), node("mrow", index)]);
  }

  #fenced() {
    const open = this.#delimiter();
    const inner = this.row((token) => token === "\\right");
    this.#take();
    return node("mrow", [...fence(open), ...inner, ...fence(this.#delimiter())]);
  }

  #delimiter() {
    this.#skipSpace();
    const token = this.#take();
    if (token === ".") return "";
    return token.startsWith("\\") ? OPERATORS[token.slice(1)] ?? token.slice(1).replace("|", "‖") : token;
  }

  #environment() {
    const kind = this.#raw();
    const fences = FENCES[kind];
    if (!fences) throw new Unreadable();
    if (kind === "array") this.#raw(); // the columns
    const isEnd = (token) => token === "&" || token === "\\\\" || token === "\\end";
    /** @type {import("./types.d.ts").MathsNode[][]} */
    const rows = [];
    let cells = [];
    for (;;) {
      cells.push(node("mtd", this.row(isEnd)));
      const token = this.#take();
      if (token === "&") continue;
      rows.push(cells);
      cells = [];
      if (token === "\\end") break;
    }
    if (this.#raw() !== kind) throw new Unreadable();
    const filled = rows.filter((row) => row.some((cell) => cell.children.length > 0));
    return node("mrow", [...fence(fences[0]), node("mtable", filled.map((row) => node("mtr", row))), ...fence(fences[1])]);
  }

  /** The source between braces, as it is. */
  #raw() {
    this.#skipSpace();
    if (this.#take() !== "{") throw new Unreadable();
    let text = "";
    for (let depth = 1; ; ) {
      const token = this.#take();
      depth += token === "{" ? 1 : token === "}" ? -1 : 0;
      if (depth === 0) return text;
      text += token;
    }
  }
}

function doubleStruck(letter) {
  return DOUBLE_STRUCK[letter] ?? (/[A-Z]/.test(letter) ? String.fromCodePoint(FIRST_DOUBLE_STRUCK + letter.charCodeAt(0) - 65) : letter);
}

const fence = (character) => (character ? [node("mo", [character], { fence: "true", stretchy: "true" })] : []);
