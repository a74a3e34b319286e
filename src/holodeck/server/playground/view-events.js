// @ts-check
// The event inspector: every event in a list that draws only visible rows, a filter, the raw JSON, curl.

import { ADDRESS } from "./address.js";
import { curlFor } from "./curl.js";
import { copyButton, h } from "./dom.js";
import { matches } from "./event-log.js";
import { identity } from "./identity.js";
import { sizeText } from "./uploads.js";

const OFTEN = 150; // milliseconds between two updates
const ROW = 26; // pixels, as in layout.css

export class EventsView {
  #shown = [];
  #selected = null;
  #isScheduled = false;
  #seen = 0; // how many entries of the log are in #shown already
  isVisible = false;

  constructor(log) {
    this.log = log;
    this.filter = h("input", { type: "search", placeholder: "Filter: tool -delta", "aria-label": "Filter events", oninput: () => this.#filterAnew() });
    this.count = h("span", { class: "quiet", role: "status" });
    this.space = h("div", { class: "event-space" });
    this.list = h("div", { class: "event-list", role: "listbox", "aria-label": "Events", tabindex: "0", onscroll: () => this.#draw(), onkeydown: (event) => this.#key(event) }, this.space);
    this.none = h("p", { class: "quiet event-none" });
    this.detail = h("div", { class: "event-detail", hidden: true });
    const clear = h("button", { type: "button", class: "text-button", onclick: () => log.clear() }, "Clear");
    this.node = h("div", { class: "events" }, h("div", { class: "event-bar" }, this.filter, this.count, clear), this.none, this.list, this.detail);
    log.listen(() => this.#schedule());
  }

  show() {
    this.isVisible = true;
    this.#filterAnew();
    this.list.scrollTop = this.list.scrollHeight;
  }

  #schedule() {
    if (this.#isScheduled || !this.isVisible) return;
    this.#isScheduled = true;
    setTimeout(() => {
      this.#isScheduled = false;
      if (this.log.entries.length < this.#seen) this.#filterAnew();
      else this.#take();
    }, OFTEN);
  }

  #filterAnew() {
    this.#shown = [];
    this.#seen = 0;
    this.words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.#take();
  }

  #take() {
    const { entries } = this.log;
    const follows = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < ROW * 2;
    for (const entry of entries.slice(this.#seen)) if (matches(entry, this.words)) this.#shown.push(entry);
    this.#seen = entries.length;
    this.count.textContent = `${this.#shown.length.toLocaleString("en")} of ${(entries.length + this.log.dropped).toLocaleString("en")}`;
    this.none.hidden = this.#shown.length > 0;
    this.none.textContent = entries.length > 0 ? "No event matches the filter." : "Events appear with the next run of this page.";
    this.space.style.height = `${this.#shown.length * ROW}px`;
    if (follows) this.list.scrollTop = this.list.scrollHeight;
    this.#draw();
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 5);
    const last = Math.min(this.#shown.length, first + Math.ceil(this.list.clientHeight / ROW) + 10);
    const rows = [];
    for (let i = first; i < last; i += 1) rows.push(this.#row(this.#shown[i], i));
    this.space.replaceChildren(...rows);
  }

  #row(entry, i) {
    const isSelected = entry === this.#selected;
    const row = h(
      "div", { class: `event of-${familyOf(entry.type)}`, role: "option", id: `event-${i}`, "aria-selected": String(isSelected), onclick: () => this.#select(i) },
      h("span", { class: "time" }, timeOf(entry.at)), h("span", { class: "type" }, entry.type),
      h("span", { class: "about" }, entry.about), h("span", { class: "size" }, sizeText(entry.size)),
    );
    row.style.transform = `translateY(${i * ROW}px)`;
    return row;
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || this.#shown.length === 0) return;
    event.preventDefault();
    const at = this.#shown.indexOf(this.#selected) + step;
    const i = Math.max(0, Math.min(this.#shown.length - 1, at));
    this.list.scrollTop = Math.max(Math.min(this.list.scrollTop, i * ROW), (i + 1) * ROW - this.list.clientHeight);
    this.#select(i);
  }

  #select(i) {
    const entry = (this.#selected = this.#shown[i]);
    this.list.setAttribute("aria-activedescendant", `event-${i}`);
    this.#draw();
    const request = this.log.requestOf(entry.runId);
    const pretty = JSON.stringify(JSON.parse(entry.data), null, 2);
    this.detail.hidden = false;
    this.detail.replaceChildren(
      h("div", { class: "event-bar" }, h("strong", {}, entry.type), h("span", { class: "quiet" }, entry.number === null ? "no id" : `id ${entry.number}`),
        h("span", { class: "spacer" }), labelled("JSON", copyButton("Copy event as JSON", () => entry.data)), labelled("curl", copyButton("Copy request as curl", () => curlFor(ADDRESS, request, identity.isSignedIn)))),
      h("pre", { tabindex: "0", "aria-label": "Raw JSON" }, pretty),
    );
  }
}

const labelled = (text, button) => {
  button.append(text);
  button.classList.add("labelled");
  return button;
};

const timeOf = (at) => new Date(at).toISOString().slice(11, 23);

const familyOf = (type) => type.split("_")[0].toLowerCase();
