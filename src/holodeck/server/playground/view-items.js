// @ts-check
// One view for each kind of item: created once, updated when its item changes. User actions go to `act`.

import { copyButton, h, icon, iconButton } from "./dom.js";
import { hintFor } from "./hints.js";
import { sizeText } from "./uploads.js";
import { CallView } from "./view-call.js";
import { MarkdownView } from "./view-markdown.js";
import { activityWords } from "./words.js";

class UserView {
  constructor(item, act) {
    this.text = h("div", { class: "user-text", dir: "auto" });
    this.files = h("ul", { class: "files", "aria-label": "Files" });
    this.edit = () => this.#edit(item, act);
    const edit = iconButton("edit", "Edit and send again", this.edit, { class: "icon-button small" });
    this.tools = h("div", { class: "item-actions" }, copyButton("Copy message", () => item.text), edit);
    this.node = h("article", { class: "user", "aria-label": "You" }, this.text, this.files, this.tools);
  }

  update(item) {
    this.text.textContent = item.text;
    this.text.hidden = item.text === "";
    this.files.hidden = item.files.length === 0;
    this.files.replaceChildren(...item.files.map((file, i) => fileNode(file, item.notes?.[i])));
  }

  #edit(item, act) {
    if (!this.text.isConnected) return; // it is being edited
    const field = h("textarea", { value: item.text, rows: "3", "aria-label": "Edit message" });
    const done = () => form.replaceWith(this.text);
    const submit = (event) => {
      event.preventDefault();
      done();
      act.resend(item.id, field.value.trim());
    };
    const form = h(
      "form", { class: "edit", onsubmit: submit }, field,
      h("p", { class: "quiet" }, "The messages after this one will be deleted."),
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Send"), h("button", { type: "button", onclick: done }, "Cancel")),
    );
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.preventDefault();
        done();
      }
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    this.text.replaceWith(form);
    field.focus();
  }
}

/** A file, and what the model received of it. */
function fileNode(file, note) {
  const read = note ? `read as ${note.read_as}${note.characters ? `, ${note.characters.toLocaleString("en")} characters` : ""}${note.truncated ? ", cut" : ""}` : "";
  const about = [sizeText(file.size), read].filter(Boolean).join(" · ");
  const head = [icon("file"), h("span", { class: "file-name" }, note?.name ?? file.name), h("span", { class: "quiet" }, about)];
  if (file.data) return h("li", {}, h("span", { class: "file" }, head), h("img", { class: "thumb", src: `data:${file.type};base64,${file.data}`, alt: file.name }));
  if (!file.text) return h("li", {}, h("span", { class: "file" }, head));
  return h("li", {}, h("details", {}, h("summary", { class: "file" }, head), h("pre", { tabindex: "0", "aria-label": "What the model received" }, file.text)));
}

class TextView {
  constructor() {
    this.markdown = new MarkdownView();
    this.node = h("article", { class: "assistant", "aria-label": "Agent" }, this.markdown.node);
  }

  update(item) {
    this.markdown.update(item.text);
    this.node.classList.toggle("streaming", !item.done);
  }
}

class ReasoningView {
  constructor() {
    this.label = h("span", {}, "Reasoning");
    this.text = document.createTextNode("");
    this.node = h("details", { class: "reasoning" }, h("summary", {}, icon("chevron"), this.label), h("div", { class: "thoughts", dir: "auto" }, this.text));
  }

  update(item) {
    this.text.data = item.text;
    this.label.textContent = item.done ? `Reasoning${item.seconds >= 0.1 ? `, ${item.seconds.toFixed(1)} s` : ""}` : "Reasoning …";
    this.node.classList.toggle("streaming", !item.done);
  }
}

class ActivityView {
  constructor() {
    this.text = h("p", { class: "activity-text" });
    this.progress = h("progress", { max: "1", "aria-label": "Progress" });
    this.content = h("pre", { tabindex: "0", "aria-label": "Details of the activity" });
    this.node = h("section", { class: "activity", "aria-label": "Activity" }, this.text, this.progress, this.content);
  }

  update(item) {
    const { text, fraction, rest } = activityWords(item.activity, item.content);
    this.text.textContent = text;
    this.progress.hidden = fraction === null;
    this.progress.value = fraction ?? 0;
    this.content.hidden = rest === null;
    this.content.textContent = rest === null ? "" : JSON.stringify(rest, null, 2);
  }
}

class NoticeView {
  constructor() {
    this.node = h("div", { class: "notice" });
  }

  update({ tone, text, hint, action }) {
    this.node.className = `notice ${tone}`;
    this.node.replaceChildren(
      h("p", {}, text), ...(hint ? [h("p", { class: "quiet" }, hint)] : []),
      ...(action ? [h("button", { type: "button", onclick: action.act }, action.label)] : []),
    );
  }
}

const ENDINGS = { __proto__: null, cancelled: "Stopped.", cut: "This answer is not complete.", unanswered: "There is no answer to this message yet." };

/** The end of a run: what failed, how long it took, what it used. */
class TurnView {
  constructor(item, act) {
    this.act = act;
    this.node = h("footer", { class: "turn" });
  }

  update(item) {
    const again = h("button", { type: "button", class: "text-button retry", onclick: () => this.act.retry() }, icon("retry"), item.outcome === "unanswered" ? "Ask again" : "Retry");
    const more = item.cutRun ? h("button", { type: "button", class: "text-button retry", onclick: () => this.act.goOn(item.cutRun) }, icon("chevron"), "Continue") : null;
    const copy = item.outcome === "success" && this.act.answerBefore(item.id) ? copyButton("Copy answer", () => this.act.answerBefore(item.id)) : null;
    const ending = item.outcome === "error" ? failureNode(item) : ENDINGS[item.outcome] ? h("p", { class: "ending" }, ENDINGS[item.outcome]) : null;
    const waits = item.outcome === "interrupt" || item.status === "client_tools";
    const marks = marksOf(item).map(([name, value]) => h("span", { class: "mark", title: name }, value));
    const actions = h("span", { class: "turn-actions" }, copy, more, waits ? null : again);
    this.node.replaceChildren(...[ending, h("div", { class: "marks" }, ...marks, actions)].filter(Boolean));
  }
}

function failureNode(item) {
  const hint = hintFor(item);
  return h("div", { class: "notice error", role: "alert" }, h("p", {}, item.message), hint ? h("p", { class: "quiet" }, hint) : null, h("p", { class: "code-name" }, [item.code, item.reason].filter(Boolean).join(" · ")));
}

const seconds = (milliseconds) => (milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`);

/** [what it is, what it says] of a run's times and tokens. The rate is of pieces when the model reports no tokens. */
export function marksOf({ marks, usage }) {
  const facts = [];
  if (marks?.first !== null && marks?.first !== undefined) facts.push(["Time to the first token", `first token ${seconds(marks.first)}`]);
  if (marks && marks.stream > 50) {
    const count = usage?.output || marks.deltas;
    facts.push(["Tokens per second while streaming", `${Math.round((count * 1000) / marks.stream).toLocaleString("en")} ${usage?.output ? "tokens" : "pieces"}/s`]);
  }
  if (marks) facts.push(["The whole run", seconds(marks.total)]);
  if (usage) facts.push(["Tokens: read, written", `${usage.input.toLocaleString("en")} in, ${usage.output.toLocaleString("en")} out`]);
  return facts;
}

const VIEWS = { user: UserView, text: TextView, reasoning: ReasoningView, call: CallView, activity: ActivityView, notice: NoticeView, turn: TurnView };

export function viewOf(item, act) {
  const view = new VIEWS[item.kind](item, act);
  view.node.dataset.item = item.id;
  view.node.dataset.kind = item.kind;
  return view;
}
