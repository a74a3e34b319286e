// @ts-check
// One open session: the user's actions become requests, the server's events go into the conversation.
//
// Runs are followed one after another, whichever page started them: this tab, another one, or this page before a reload.

import { followRun, Problem } from "./client.js";
import { Conversation } from "./conversation.js";
import { hintFor } from "./hints.js";
import { newId } from "./ids.js";
import { toAgui } from "./messages.js";
import { titleOf } from "./sessions.js";

export class Room {
  conversation = new Conversation();
  connection = "idle"; // idle | live | lost
  refusal = ""; // while it is lost: why the server refuses for now, "" if it does not answer
  isKnown = true; // false when the server does not have the session that was opened
  isUnread = false; // the session is not loaded yet
  /** @type {any[]} */
  #queue = [];
  #left = new AbortController();
  #givenUp = new AbortController();
  #isFollowing = false;
  #isOurs = false; // whether this tab started the last run: then its frontend tools are for this tab to carry out

  constructor(id, { server, sessions, log, tabs, tools, isUnused, onChange, trouble }) {
    this.id = id;
    this.server = server;
    this.sessions = sessions;
    this.log = log;
    this.tabs = tabs;
    this.tools = tools;
    this.isUnused = isUnused;
    this.onChange = onChange;
    this.trouble = trouble;
  }

  get isBusy() {
    return this.#isFollowing || this.#queue.length > 0;
  }

  /** Loads the session from the server and follows its runs in progress. */
  async open() {
    const session = await this.server.session(this.id);
    if (this.isBusy) return; // a run was started in the meantime; its events bring the rest
    const entry = this.sessions.get(this.id);
    this.isKnown = session !== null || (entry === undefined && this.isUnused()); // the id of a page without a message is new
    if (session !== null) this.conversation.load(session);
    const active = session?.active_runs ?? [];
    this.#bringBack(entry?.sending, active);
    active.forEach((runId) => this.#enqueue({ runId, replayed: true }));
  }

  /** Shows the messages of other devices: the server takes a history without them for an edit, and removes them. */
  async #catchUp() {
    /** @type {Promise<null>} */
    const late = new Promise((resolve) => setTimeout(resolve, 1000, null)); // a message does not wait for a server that is away
    const session = await Promise.race([this.server.session(this.id).catch(() => null), late]);
    if (session?.messages.some((message) => message.role === "user" && !this.conversation.find(message.id))) await this.open().catch(() => {});
  }

  /** Handles a message that was being sent when the page was closed: its run is known, or it can be sent again. */
  #bringBack(sending, active) {
    if (!sending || this.conversation.find(sending.id)) return;
    this.conversation.addUser(sending.id, sending.text, sending.files);
    if (!active.includes(sending.runId)) {
      this.conversation.notice("lost", "warning", "This message did not reach the server.", "", { label: "Send again", act: () => this.retry() });
    }
  }

  /** The server does not have the session any more, if it ever had: nothing is stored of a message that was not accepted. */
  missed() {
    if (!this.isBusy && this.conversation.items.some((item) => item.kind === "text" || item.kind === "call")) this.isKnown = false;
    this.onChange();
  }

  leave() {
    this.#left.abort();
  }

  // the user's actions

  async send(text, files = []) {
    if (this.conversation.items.length > 0 && !this.isBusy) await this.#catchUp();
    const id = newId("message");
    const parts = files.map((file) => file.part);
    const shown = files.map(({ name, type, size }) => ({ name, type, size }));
    this.conversation.settle();
    const history = toAgui(this.conversation.items);
    this.conversation.addUser(id, text, shown, parts);
    const runId = newId("run");
    const title = this.sessions.get(this.id)?.title || titleOf(text || shown[0]?.name || "");
    this.sessions.update(this.id, { title, at: Date.now(), sending: { id, runId, text, files: shown } });
    this.#start(runId, [...history, { id, role: "user", content: withParts(text, parts) }], {}, [{ id, text, files: shown }]);
  }

  /** Answers all questions of a run together: [{id, approved, arguments?}]. */
  decide(decisions) {
    const resume = decisions.map(({ id, approved, arguments: edited }) => ({ interruptId: id, status: "resolved", payload: { approved, ...(edited ? { arguments: edited } : {}) } }));
    this.#carryOutCalls();
    this.conversation.settle(performance.now());
    this.#start(newId("run"), toAgui(this.conversation.items), { resume });
  }

  async stop() {
    const { run } = this.conversation;
    if (!run) return;
    if (run.isCut) return this.#givenUp.abort(); // the id of its continuation is not known yet
    try {
      await this.server.stop(run.runId);
    } catch {
      this.#givenUp.abort(); // the server has no such run, or is away: stop waiting for it
    }
  }

  /** Asks for the rest of the answer of a run that was cut. */
  goOn(runId) {
    if (!this.isBusy) this.#enqueue({ runId, isCut: true });
  }

  /** Asks again for an answer to the user's last message. */
  async retry() {
    const last = this.conversation.items.findLast((item) => item.kind === "user");
    if (last) await this.resend(last.id, last.text, true);
  }

  /** Removes a message and everything after it, and sends it again, changed or not. */
  async resend(messageId, text, isSame = false) {
    const item = this.conversation.find(messageId);
    if (!item || this.isBusy) return;
    if (!isSame || this.#isAnswered(messageId)) {
      try {
        await this.#rewind(messageId);
      } catch (error) {
        return this.#showProblem("rewind", error);
      }
      return this.send(text, item.parts.map((part, i) => ({ part, ...item.files[i] })));
    }
    this.#dropFrom(messageId, false);
    const messages = toAgui(this.conversation.items);
    messages[messages.length - 1].content = withParts(text, item.parts);
    this.#start(newId("run"), messages, {}, [{ id: messageId, text, files: item.files }]);
  }

  #isAnswered(messageId) {
    const at = this.conversation.items.findIndex((item) => item.id === messageId);
    return this.conversation.items.slice(at).some((item) => item.kind === "text" || item.kind === "call");
  }

  async #rewind(messageId) {
    try {
      await this.server.forget(this.id, messageId);
    } catch (error) {
      const isGone = error instanceof Problem && (error.code === "session-not-found" || error.status === 422);
      if (!isGone) throw error; // the server does not have it, so it need not delete it
    }
    this.#dropFrom(messageId, true);
    this.tabs.post({ kind: "rewound", session: this.id });
  }

  #dropFrom(messageId, isDropped) {
    const { items } = this.conversation;
    const at = items.findIndex((item) => item.id === messageId);
    for (const item of items.slice(isDropped ? at : at + 1)) this.conversation.remove(item.id);
  }

  // other tabs

  started({ run, messages }) {
    if (this.conversation.run?.runId !== run && !this.#queue.some((each) => each.runId === run)) this.#enqueue({ runId: run, messages });
  }

  // runs

  #start(runId, messages, fields, shown = []) {
    const input = { threadId: this.id, runId, protocolVersion: "1.0", messages, state: this.conversation.state ?? {}, ...this.tools.offer(), ...fields };
    this.log.requested(runId, { method: "POST", path: "/awp", body: input });
    this.#enqueue({ runId, input, messages: shown, isDecision: "resume" in fields });
  }

  #enqueue(entry) {
    this.#queue.push(entry);
    if (!this.#isFollowing) this.#work();
  }

  async #work() {
    this.#isFollowing = true;
    try {
      while (this.#queue.length > 0 && !this.#left.signal.aborted) await this.#follow(this.#queue.shift());
    } finally {
      this.#isFollowing = false;
      this.#connected("idle");
    }
    this.#goOnAfterCalls();
  }

  async #follow({ runId, input = null, isCut = false, messages = [], replayed = false, isDecision = false }) {
    const { conversation } = this;
    const isOurs = input !== null || isCut;
    for (const { id, text, files } of messages) conversation.addUser(id, text, files);
    conversation.remove("lost");
    conversation.runSent(runId, performance.now(), isCut);
    this.#givenUp = new AbortController();
    this.onChange();
    try {
      await followRun({
        server: this.server, runId, input, isCut, signal: AbortSignal.any([this.#left.signal, this.#givenUp.signal]),
        onEvent: (event, frame) => {
          const at = performance.now();
          this.#connected("live");
          this.log.add(frame.runId, event, frame, Date.now());
          conversation.apply(event, at, replayed);
          if (event.type === "RUN_ERROR") this.trouble();
          if (event.type === "RUN_STARTED") this.#arrived(frame.runId, isOurs ? messages : null);
        },
        lost: ({ failure }) => this.#connected("lost", failure instanceof Problem ? failure.message : ""),
      });
      if (conversation.run) conversation.apply({ type: "RUN_FINISHED", runId: conversation.run.runId, outcome: { type: "cancelled" } }, performance.now()); // given up
    } catch (error) {
      await this.#lose(error, isDecision);
    }
    this.#isOurs = isOurs;
  }

  /** The server has the run. Other tabs are notified only now: before, they would find nothing to follow. */
  #arrived(runId, messages) {
    this.sessions.update(this.id, { at: Date.now(), sending: undefined });
    if (messages !== null) this.tabs.post({ kind: "started", session: this.id, run: runId, messages });
  }

  /** The run cannot be followed: the server forgot it, or refused it. A refused decision may have been made elsewhere. */
  async #lose(error, isDecision) {
    this.conversation.apply({ type: "RUN_ERROR", message: error.message, code: error.code ?? "network", metadata: { reason: error.reason } }, performance.now());
    const isGone = error instanceof Problem && (error.code === "run-not-found" || error.code === "replay-gone");
    if (!isGone && !isDecision) return;
    const session = await this.server.session(this.id).catch(() => undefined); // gone again: then nothing is known
    if (session) this.conversation.load(session); // without the error and its hint
    if (isGone) this.conversation.notice("lost", "warning", session === null ? "The server was restarted and no longer has this session." : "The connection was lost, and with it the rest of the answer.", session ? hintFor(error) : "", { label: "Ask again", act: () => this.retry() });
    else if (session) this.#showProblem("refused", error);
  }

  #connected(connection, refusal = "") {
    if (this.connection === connection && this.refusal === refusal) return;
    const wasLost = this.connection === "lost";
    this.connection = connection;
    this.refusal = refusal;
    this.onChange();
    if (wasLost || connection === "lost") this.trouble();
  }

  #showProblem(id, error) {
    this.conversation.notice(id, "error", error.message, hintFor(error));
  }

  // frontend tools

  #goOnAfterCalls() {
    const waits = this.conversation.items.some((item) => item.kind === "call" && item.status === "client");
    if (waits && this.#isOurs && this.conversation.questions.length === 0) this.runClientTools();
  }

  /** Runs the page tools that the agent called, and continues the run. Also for a call from before a reload. */
  runClientTools() {
    this.#carryOutCalls();
    this.#start(newId("run"), toAgui(this.conversation.items), {});
  }

  #carryOutCalls() {
    for (const item of this.conversation.items) {
      if (item.kind !== "call" || item.status !== "client") continue;
      const { text, failed } = this.tools.run(item.name, item.arguments);
      this.conversation.answer(item.id, newId("result"), text, failed);
    }
  }
}

const withParts = (text, parts) => (parts.length > 0 ? [{ type: "text", text }, ...parts] : text);
