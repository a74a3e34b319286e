// @ts-check
// The conversation on the screen: keeps one view for each item, in the order of the items, at most once a frame.

import { Conversation } from "./conversation.js";
import { copyButton, h } from "./dom.js";
import { viewOf } from "./view-items.js";

const NEAR_END = 80; // pixels from the end within which the view follows new text
const FAR = 1e9; // further down than anything: to ask how far that is would take a layout of its own

export class Transcript {
  /** @type {Map<string, import("./types.d.ts").View>} */
  #views = new Map();
  #conversation = new Conversation();
  #isScheduled = false;
  #follows = true;

  constructor({ list, scroll, jump, progress }, act, onState) {
    this.list = list;
    this.scroll = scroll;
    this.jump = jump;
    this.progress = progress;
    this.act = act;
    this.onState = onState;
    this.empty = () => h("p");
    scroll.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    jump.addEventListener("click", () => this.#toEnd());
    new ResizeObserver(() => this.#follows && this.#toEnd()).observe(scroll); // a notice above it takes room from its end
  }

  show(conversation, empty) {
    this.#conversation.listen(() => {});
    this.#conversation = conversation;
    this.#views.clear();
    this.list.replaceChildren();
    this.empty = empty;
    conversation.listen(() => this.#schedule());
    conversation.takeChanges();
    this.scroll.scrollTop = 0;
    this.#draw({ items: conversation.items, moved: true, state: true });
    this.#toEnd();
  }

  /** Scrolls with new items from now on: the user has sent a message and wants to see the answer. */
  follow() {
    this.#toEnd();
  }

  /** Opens the editor of a message that the person sent. */
  edit(id) {
    this.#views.get(id)?.edit?.();
  }

  /** A hidden tab gets no frames; it is drawn by a timer, so that it is right when it is looked at. */
  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const draw = () => {
      this.#isScheduled = false;
      this.#draw(this.#conversation.takeChanges());
    };
    if (document.hidden) setTimeout(draw, 50);
    else requestAnimationFrame(draw);
  }

  #draw({ items, moved, state }) {
    const { items: all, run } = this.#conversation;
    for (const item of items) if (!item.dropped) this.#viewOf(item).update(item);
    if (moved) this.#order(all);
    this.progress.hidden = run === null || all.at(-1)?.status === "running";
    this.progress.textContent = run?.started ? "Thinking" : "Sending";
    if (run && all.at(-1)?.done === false) this.progress.hidden = true;
    this.onState({ changed: state });
    if (this.#follows) this.#toEnd();
    else this.jump.hidden = false;
  }

  #viewOf(item) {
    const known = this.#views.get(item.id);
    if (known?.item === item) return known;
    const made = viewOf(item, this.act);
    known?.node.replaceWith(made.node);
    made.item = item;
    this.#views.set(item.id, made);
    made.update(item);
    return made;
  }

  #order(items) {
    const wanted = new Set(items.map((item) => item.id));
    for (const [id, view] of this.#views) {
      if (wanted.has(id)) continue;
      view.node.remove();
      this.#views.delete(id);
    }
    let place = this.list.firstChild;
    for (const item of items) {
      const { node } = this.#viewOf(item);
      if (node === place) place = place.nextSibling;
      else this.list.insertBefore(node, place);
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
    if (items.length === 0) this.list.append(this.empty());
  }

  /** Asked when the user scrolls, not when something is drawn: the answer takes a layout. */
  #scrolled() {
    const left = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight;
    this.#follows = left < NEAR_END || this.#isEmpty;
    this.jump.hidden = this.#follows;
  }

  #toEnd() {
    this.#follows = true;
    if (!this.#isEmpty) this.scroll.scrollTop = FAR; // the start page is read from its top
    this.jump.hidden = true;
  }

  get #isEmpty() {
    return this.#conversation.items.length === 0;
  }
}

/** The page before the first message. */
export function emptyState({ capabilities, health, commands, ask, paintPage }) {
  const identity = capabilities?.identity ?? {};
  const tools = capabilities?.tools?.items ?? [];
  const listed = tools.map((tool) => h("li", {}, h("code", {}, tool.name), h("span", {}, firstSentence(tool.description))));
  return h(
    "div", { class: "empty" },
    h("h2", {}, identity.name ?? "Your agent"),
    identity.description ? h("p", { class: "lead" }, identity.description) : null,
    h("div", { class: "row" }, ["Hello", "What can you do?"].map((text) => h("button", { type: "button", class: "suggestion", onclick: () => ask(text) }, text))),
    tools.length > 0 ? h("section", { class: "tools", "aria-label": "Tools" }, h("h3", {}, `${tools.length} ${tools.length === 1 ? "tool" : "tools"}`), h("ul", {}, listed)) : null,
    tools.length === 0 && capabilities ? h("p", { class: "quiet" }, "This agent has no tools. Add some under tools: in its file, and restart.") : null,
    h("section", { class: "start-part", "aria-label": "Frontend tools" },
      h("h3", {}, "Tools of the page"),
      h("p", { class: "quiet" }, "A front end can offer its own tools. This page has one, change_background: the agent calls it, the page carries it out and answers. ", h("button", { type: "button", class: "text-button", onclick: paintPage }, "Try it: let the agent paint this page"))),
    commands.length > 0 ? h("section", { class: "start-part", "aria-label": "From the shell" }, h("h3", {}, "From the shell, for each protocol that is served"), commands.map(commandNode)) : null,
    health?.model ? h("p", { class: "quiet" }, `Model: ${health.model}. Everything on this page is AG-UI; the inspector shows every event.`) : null,
  );
}

const commandNode = ({ protocol, title, curl }) =>
  h("figure", { class: "command" },
    h("figcaption", {}, h("span", {}, h("code", {}, protocol), ` ${title}`), copyButton(`Copy the command for ${protocol}`, () => curl)),
    h("pre", { tabindex: "0", "aria-label": `Command for ${protocol}` }, curl));

const firstSentence = (text) => (text ?? "").split(/(?<=\.)\s|\n/)[0].slice(0, 140);
