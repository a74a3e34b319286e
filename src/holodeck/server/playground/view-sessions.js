// @ts-check
// The list of sessions at the side: open, search, new, rename, delete, export.

import { ADDRESS } from "./address.js";
import { h, icon, iconButton } from "./dom.js";
import { identity } from "./identity.js";
import { nameOf } from "./sessions.js";

const SEARCHED = 6; // sessions; fewer are seen at a glance

export class SessionList {
  constructor(nav, sessions, act) {
    this.sessions = sessions;
    this.act = act;
    this.current = "";
    this.list = h("ul", { class: "session-list" });
    this.search = h("input", { type: "search", class: "session-search", placeholder: "Search sessions", "aria-label": "Search sessions", oninput: () => this.show(this.current) });
    this.none = h("p", { class: "quiet", role: "status" });
    this.demo = h("input", { type: "checkbox", id: "page-tools", onchange: () => act.offerTools(this.demo.checked) });
    nav.append(
      h("button", { type: "button", class: "new-session", onclick: act.create }, icon("plus"), "New session"),
      this.search, this.none, this.list,
      h("div", { class: "side-foot" },
        h("label", { for: "page-tools", title: "A frontend tool: the agent calls change_background, and this page carries it out" }, this.demo, "Let the agent paint this page"),
        h("p", { class: "side-links" }, h("a", { href: `${ADDRESS}/docs` }, "HTTP interface"), h("a", { href: `${ADDRESS}/health/agent` }, "Health"))),
    );
  }

  offerTools(isOffered) {
    this.demo.checked = isOffered;
    this.act.offerTools(isOffered);
  }

  show(current) {
    this.current = current;
    const known = this.sessions.all();
    const all = known.some((each) => each.id === current) ? known : [{ id: current, title: "", at: Date.now() }, ...known];
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((entry) => words.every((word) => nameOf(entry).toLowerCase().includes(word) || entry.id.toLowerCase() === word));
    this.search.hidden = all.length < SEARCHED && words.length === 0;
    this.none.textContent = found.length === 0 ? "No session has these words in its title." : "";
    this.list.replaceChildren(...found.map((entry) => this.#row(entry, entry.id === current)));
  }

  /** Shows changes from the background, but not while a title is edited or a question is open. */
  update(current) {
    if (this.list.querySelector("input, .confirm") === null) this.show(current);
  }

  #row(entry, isCurrent) {
    const title = nameOf(entry);
    const open = h("a", { href: `#session=${encodeURIComponent(entry.id)}`, "aria-current": isCurrent ? "page" : null, title }, title);
    const row = h("li", { class: isCurrent ? "current" : null }, open);
    if (isCurrent) {
      row.append(h("span", { class: "session-actions" },
        iconButton("edit", "Rename session", () => this.#rename(entry, open)),
        ...["Markdown", "JSON"].map((format) => this.#export(entry, format)),
        iconButton("trash", "Delete session", () => this.#confirm(entry, row), { disabled: !identity.may("sessions:delete") })));
    }
    return row;
  }

  #export(entry, format) {
    const name = format === "JSON" ? "export" : "file";
    return iconButton(name, `Export session as ${format}`, () => this.act.export(entry.id, format), { disabled: !identity.may("sessions:read") });
  }

  #rename(entry, open) {
    const field = h("input", { value: entry.title, "aria-label": "Title of the session", maxlength: "80" });
    let isOver = false;
    const end = (isKept) => {
      if (isOver) return;
      isOver = true;
      if (isKept && field.value.trim()) this.sessions.update(entry.id, { title: field.value.trim() });
      this.show(this.current);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      end(event.key === "Enter");
    });
    field.addEventListener("blur", () => end(true));
    open.replaceWith(field);
    field.select();
    field.focus();
  }

  #confirm(entry, row) {
    const sure = h("button", { type: "button", class: "danger", onclick: () => this.act.forget(entry.id) }, "Delete");
    row.replaceChildren(h("span", { class: "confirm" }, "Delete permanently?"), sure, h("button", { type: "button", onclick: () => this.show(this.current) }, "Keep"));
    sure.focus();
  }
}
