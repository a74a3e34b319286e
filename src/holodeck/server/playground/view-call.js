// @ts-check
// A tool call as a card: name, arguments as they stream, result, how long it took, and the approval when it is needed.

import { h, icon } from "./dom.js";
import { identity } from "./identity.js";

const STATUS = {
  writing: "writing arguments", running: "running", done: "done", failed: "failed", stopped: "not carried out",
  rejected: "you rejected it", passed: "not carried out: you continued without approving it",
  approval: "needs your approval", client: "waits for this page",
};
const TIMED = new Set(["done", "failed"]);
const LONG = 400; // characters of a result above which it starts folded

export class CallView {
  constructor(item, act) {
    this.act = act;
    this.status = h("span", { class: "status" });
    this.summary = h("span", { class: "call-summary" });
    this.arguments = h("pre", { tabindex: "0", "aria-label": "Arguments" });
    this.result = h("pre", { class: "result", tabindex: "0", "aria-label": "Result" });
    this.images = h("div", { class: "call-images" });
    this.question = h("div", { class: "question" });
    this.resultPart = h("div", {}, h("div", { class: "part-name" }, "Result"), this.result, this.images);
    this.details = h(
      "details", {},
      h("summary", {}, icon("chevron"), icon("tool"), h("span", { class: "call-name" }, item.name), this.summary, this.status),
      h("div", { class: "call-body" }, h("div", { class: "part-name" }, "Arguments"), this.arguments, this.resultPart),
    );
    this.node = h("section", { class: "call", "aria-label": `Tool call ${item.name}` }, this.details, this.question);
  }

  update(item) {
    this.node.dataset.status = item.status;
    this.status.textContent = STATUS[item.status] + (Number.isFinite(item.seconds) && TIMED.has(item.status) ? `, ${duration(item.seconds)}` : "");
    this.summary.textContent = item.arguments === "{}" ? "" : item.arguments.replace(/\s+/g, " ").slice(0, 160);
    this.arguments.textContent = pretty(item.arguments);
    this.resultPart.hidden = item.result === undefined;
    if (item.result !== undefined) this.result.textContent = pretty(item.result);
    this.images.replaceChildren(...(item.images ?? []).map((each) => h("img", { src: `data:${each.type};base64,${each.data}`, alt: "Picture in the result" })));
    if (item.status === "failed" && this.shown !== "failed" && item.result.length < LONG) this.details.open = true;
    if (this.shown !== item.status) this.#ask(item);
    this.shown = item.status;
  }

  #ask(item) {
    if (item.status === "client") {
      this.question.replaceChildren(h("p", {}, "The agent asked this page to carry out the call."), h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: () => this.act.runClientTools() }, "Carry it out")));
    } else if (item.status !== "approval") this.question.replaceChildren();
    else {
      this.details.open = true;
      this.question.replaceChildren(...this.#choices(item.question));
    }
  }

  #choices(question) {
    const disabled = !identity.may("approve");
    const allow = h("button", { type: "button", class: "primary", disabled, onclick: () => this.#decide({ id: question.id, approved: true }) }, "Approve");
    const edit = h("button", { type: "button", disabled, onclick: () => this.#edit(question) }, "Edit");
    const refuse = h("button", { type: "button", class: "danger", disabled, onclick: () => this.#decide({ id: question.id, approved: false }) }, "Reject");
    return [h("p", {}, disabled ? "This call waits for a user who may approve it." : `May the agent call ${question.tool ?? "this tool"}?`), h("div", { class: "row" }, allow, edit, refuse)];
  }

  #offer(question) {
    this.question.replaceChildren(...this.#choices(question));
    this.question.querySelector("button").focus();
  }

  #edit(question) {
    const field = h("textarea", { value: pretty(question.arguments), rows: "6", spellcheck: "false", "aria-label": "Arguments as JSON" });
    const problem = h("p", { class: "field-problem", role: "alert" });
    const submit = (event) => {
      event.preventDefault();
      const edited = readObject(field.value);
      if (edited === null) problem.textContent = "The arguments must be a JSON object.";
      else this.#decide({ id: question.id, approved: true, arguments: edited });
    };
    const back = h("button", { type: "button", onclick: () => this.#offer(question) }, "Cancel");
    this.question.replaceChildren(h("form", { class: "edit", onsubmit: submit }, field, problem, h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Approve with these"), back)));
    field.focus();
  }

  #decide(decision) {
    const verdict = decision.approved ? (decision.arguments ? "Approved with your arguments." : "Approved.") : "Rejected.";
    this.question.replaceChildren(h("p", { class: "quiet" }, verdict));
    this.act.decide(decision);
    passFocusOn();
  }
}

/** Moves the focus from the pressed button, which is gone, to the next question or to the message field. */
function passFocusOn() {
  const next = document.querySelector(".question button") ?? document.querySelector("#message");
  const opensKeyboard = next?.id === "message" && matchMedia("(pointer: coarse)").matches;
  if (next instanceof HTMLElement && !opensKeyboard) next.focus();
}

const duration = (seconds) => (seconds < 1 ? `${Math.max(1, Math.round(seconds * 1000))} ms` : `${seconds.toFixed(1)} s`);

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still streaming, or not JSON
  }
}

function readObject(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
