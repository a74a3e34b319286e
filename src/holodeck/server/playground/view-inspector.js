// @ts-check
// The panel at the side: state and events in two tabs.

import { h, iconButton } from "./dom.js";
import { EventsView } from "./view-events.js";
import { StateView } from "./view-state.js";

export class Inspector {
  constructor(aside, log, onClose) {
    this.aside = aside;
    this.state = new StateView();
    this.events = new EventsView(log);
    this.panels = { State: this.state.node, Events: this.events.node };
    this.tabs = Object.keys(this.panels).map((name) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => this.choose(name) }, name));
    const panels = Object.entries(this.panels).map(([name, node]) => h("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, class: "panel", hidden: true }, node));
    const bar = h("div", { role: "tablist", "aria-label": "Inspector", onkeydown: (event) => this.#key(event) }, this.tabs);
    aside.append(h("div", { class: "inspector-bar" }, bar, iconButton("close", "Close the inspector", onClose)), ...panels);
    this.choose("Events");
  }

  choose(name) {
    this.chosen = name;
    for (const tab of this.tabs) {
      const isChosen = tab.textContent === name;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
    for (const panel of this.aside.querySelectorAll("[role=tabpanel]")) panel.hidden = panel.id !== `panel-${name}`;
    this.#wake();
  }

  set isOpen(isOpen) {
    this.aside.hidden = !isOpen;
    this.#wake();
  }

  #wake() {
    this.events.isVisible = !this.aside.hidden && this.chosen === "Events";
    if (this.events.isVisible) this.events.show();
  }

  #key(event) {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    const other = this.tabs.find((tab) => tab.textContent !== this.chosen);
    this.choose(other.textContent);
    other.focus();
  }
}
