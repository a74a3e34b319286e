// @ts-check
// Signing in: one field for a key or a token. The credential is sent to the server in a header and nowhere else.

import { h } from "./dom.js";

export class SignIn {
  constructor(tryIt) {
    this.field = h("input", { type: "password", id: "credential", autocomplete: "off", spellcheck: "false", required: true });
    this.keep = h("input", { type: "checkbox", id: "keep-credential" });
    this.problem = h("p", { class: "field-problem", role: "alert" });
    const form = h(
      "form", { class: "sign-in", onsubmit: (event) => this.#submit(event, tryIt) },
      h("h2", { id: "sign-in-title" }, "Sign in"),
      h("label", { for: "credential" }, "Key or token"), this.field, this.problem,
      h("label", { for: "keep-credential", class: "row" }, this.keep, "Keep in this tab"),
      h("button", { type: "submit", class: "primary" }, "Sign in"),
    );
    this.node = h("dialog", { "aria-labelledby": "sign-in-title", oncancel: (event) => event.preventDefault() }, form);
    document.body.append(this.node);
  }

  show(problem = "") {
    this.problem.textContent = problem;
    if (!this.node.open) this.node.showModal();
    this.field.focus();
  }

  async #submit(event, tryIt) {
    event.preventDefault();
    const credential = this.field.value.trim();
    this.field.value = "";
    if (!/^[!-~]+$/.test(credential)) return this.show("A key or token has no spaces and only ASCII characters.");
    const problem = await tryIt(credential, this.keep.checked);
    if (problem === null) this.node.close();
    else this.show(problem);
  }
}
