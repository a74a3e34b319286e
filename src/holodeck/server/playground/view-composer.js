// @ts-check
// The message field: text, files by button, paste and drop, send and stop.

import { h, icon, iconButton } from "./dom.js";
import { MAX_FILES, readUpload, sizeText } from "./uploads.js";

export class Composer {
  #files = [];
  #isBusy = false;
  allowed = { send: true, stop: true };

  /** `editLast` opens the person's last message for editing. */
  constructor(form, { send, stop, editLast }, dropZone) {
    this.actions = { send, stop, editLast };
    this.field = h("textarea", { id: "message", rows: "1", placeholder: "Message the agent", "aria-label": "Message", "aria-describedby": "composer-help" });
    this.chips = h("ul", { class: "chips", "aria-label": "Files to send", hidden: true });
    this.problem = h("p", { class: "field-problem", role: "alert" });
    this.picker = h("input", { type: "file", multiple: true, class: "offscreen", tabindex: "-1", "aria-label": "Choose files", onchange: () => this.#pick() });
    this.button = h("button", { type: "submit", class: "send primary", "aria-label": "Send", title: "Send (Enter)" }, icon("send"));
    const attach = iconButton("attach", "Attach files", () => this.picker.click());
    form.append(this.chips, this.problem, h("div", { class: "field" }, attach, this.picker, this.field, this.button), h("p", { id: "composer-help", class: "help" }, "Enter sends, Shift+Enter breaks the line, ↑ edits the last message, Esc stops"));
    this.#listen(form, dropZone);
  }

  set isBusy(isBusy) {
    if (this.#isBusy === isBusy) return;
    this.#isBusy = isBusy;
    this.button.replaceChildren(icon(isBusy ? "stop" : "send"));
    this.button.setAttribute("aria-label", isBusy ? "Stop" : "Send");
    this.button.title = isBusy ? "Stop (Esc)" : "Send (Enter)";
    this.button.classList.toggle("stop", isBusy);
    this.button.disabled = !(isBusy ? this.allowed.stop : this.allowed.send);
  }

  /** Whether the user may send messages, and stop runs. */
  allow({ send, stop }) {
    this.field.disabled = !send;
    this.field.placeholder = send ? "Message the agent" : "This credential may not start runs";
    this.button.disabled = this.#isBusy ? !stop : !send;
    this.allowed = { send, stop };
  }

  focus() {
    this.field.focus();
  }

  #listen(form, dropZone) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#isBusy) this.actions.stop();
      else this.#send();
    });
    this.field.addEventListener("input", () => this.#grow());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "ArrowUp" && this.field.value === "" && !this.#isBusy) {
        event.preventDefault();
        this.actions.editLast();
      }
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.#isBusy) this.#send();
    });
    this.field.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length === 0) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
    for (const type of ["dragover", "dragleave", "drop"]) dropZone.addEventListener(type, (event) => this.#drag(event, dropZone));
  }

  #drag(event, dropZone) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    dropZone.classList.toggle("dropping", event.type === "dragover");
    if (event.type === "drop") this.add(event.dataTransfer.files);
  }

  #grow() {
    const limit = innerHeight * 0.4;
    this.field.style.height = "auto";
    this.field.style.overflowY = this.field.scrollHeight > limit ? "auto" : "hidden";
    this.field.style.height = `${Math.min(this.field.scrollHeight, limit)}px`;
  }

  #send() {
    const text = this.field.value.trim();
    if (text === "" && this.#files.length === 0) return;
    this.actions.send(text, this.#files);
    this.field.value = "";
    this.#files = [];
    this.#show();
    this.#grow();
  }

  async #pick() {
    await this.add(this.picker.files);
    this.picker.value = "";
  }

  async add(files) {
    this.problem.textContent = "";
    for (const file of files) {
      if (this.#files.length >= MAX_FILES) {
        this.problem.textContent = `At most ${MAX_FILES} files go with a message.`;
        break;
      }
      try {
        this.#files.push(await readUpload(file));
      } catch (error) {
        this.problem.textContent = error.message;
      }
    }
    this.#show();
    this.focus();
  }

  #show() {
    this.chips.hidden = this.#files.length === 0;
    this.chips.replaceChildren(...this.#files.map((file) => {
      const remove = iconButton("close", `Remove ${file.name}`, () => {
        this.#files = this.#files.filter((each) => each !== file);
        this.#show();
      });
      return h("li", {}, icon("file"), h("span", { class: "file-name" }, file.name), h("span", { class: "quiet" }, sizeText(file.size)), remove);
    }));
  }
}
