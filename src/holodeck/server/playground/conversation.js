// @ts-check
// The items of a session in the order in which they are shown, changed by AG-UI events. No DOM, no network.
//
// kinds: user, text, reasoning, call, activity, notice, turn (the end of a run: times, usage, how it ended).
// Replaying a run from its start gives the same items: a reloaded page neither loses nor doubles anything.

import { fromAgui, fromSession } from "./messages.js";
import { apply, differences, PatchError } from "./patch.js";
import { callOutcome, historyWords } from "./words.js";

const OWN = new Set(["reasoning", "activity", "notice", "turn"]); // no snapshot has them
const CUT = new Set(["interrupted", "shutting-down"]); // the server ended, not the agent: the run can be continued
const STATE = Symbol("state");

export class Conversation {
  /** @type {import("./types.d.ts").Item[]} */
  items = [];
  /** @type {any} */
  state = null;
  changes = []; // the last changes of the state
  /** @type {import("./types.d.ts").CurrentRun | null} */
  run = null;
  /** @type {import("./types.d.ts").Question[]} */
  questions = []; // that wait for a person
  #known = new Map(); // by id; also those that a snapshot dropped, since the next one may bring them back
  #changed = new Set();
  #moved = false;
  #listener = () => {};

  listen(listener) {
    this.#listener = listener;
  }

  /** What changed since the last call: {items, moved, state}. */
  takeChanges() {
    const taken = { items: [...this.#changed].filter((each) => each !== STATE), moved: this.#moved, state: this.#changed.has(STATE) };
    this.#changed.clear();
    this.#moved = false;
    return taken;
  }

  find(id) {
    const item = this.#known.get(id);
    return item && !item.dropped ? item : undefined;
  }

  get isWaiting() {
    return this.questions.length > 0 || this.items.some((item) => item.kind === "call" && item.status === "client");
  }

  // what the page itself does

  addUser(id, text, files = [], parts = []) {
    if (!this.find(id)) this.#add({ kind: "user", id, text, files, parts });
  }

  /** @param {import("./types.d.ts").NoticeAction | null} action */
  notice(id, tone, text, hint = "", action = null) {
    const item = this.find(id) ?? this.#add({ kind: "notice", id });
    this.#change(item, { tone, text, hint, action });
  }

  remove(id) {
    this.#reorder(this.items.filter((item) => item.id !== id));
  }

  /** A tool of the page has answered. */
  answer(callId, resultId, result, failed = false) {
    this.#change(this.find(callId), { status: failed ? "failed" : "done", resultId, result, failed });
  }

  ask(questions) {
    this.questions = questions;
    for (const question of questions) {
      const item = this.find(question.callId);
      if (item) this.#change(item, { status: "approval", question });
    }
  }

  /** The questions are answered or passed over; the run that follows, since `at`, shows what became of the calls.
   * @param {number | null} at
   */
  settle(at = null) {
    for (const { callId } of this.questions) {
      const item = this.find(callId);
      if (item) this.#change(item, { status: "running", question: null, at }); // what a person took to answer does not count
    }
    this.questions = [];
  }

  // the server's memory

  load(session) {
    this.#known.clear();
    this.items = [];
    this.run = null;
    const messages = session.messages.map(fromSession);
    const pending = session.pending;
    if (pending) messages.push(fromSession(pending.message), ...pending.results.map(fromSession));
    const active = session.active_runs.length > 0;
    let usage = null;
    messages.forEach((message, i) => {
      for (const item of this.#itemsOf(message)) this.#add({ ...item, remembered: true });
      if (message.usage) usage = addUsage(usage, usageOf(message.usage));
      const next = messages[i + 1];
      if (next?.role === "user" || (!next && !active && !pending)) {
        const cutRun = next ? null : session.cut_run; // its turn is named as when it ends before this page
        const id = cutRun ? `turn:${cutRun}` : `after:${message.id}`;
        const outcome = message.role === "user" ? "unanswered" : message.cut === "stopped" ? "cancelled" : message.cut || cutRun ? "cut" : "success";
        this.#add({ kind: "turn", id, outcome, cut: message.cut, cutRun, usage });
        usage = null;
      } else if (message.cut && next?.role === "assistant") { // its run continued after a crash
        this.#add({ kind: "turn", id: `after:${message.id}`, messageId: message.id, remembered: true, outcome: "cut", cut: message.cut, cutRun: null, usage: null });
      }
    });
    if (pending) {
      this.ask(pending.questions.map((each) => ({ id: each.interrupt_id, callId: each.call_id, tool: each.tool, arguments: each.arguments, expires: pending.expires_at })));
      for (const id of pending.client_calls) this.#change(this.find(id), { status: "client" });
    } else this.questions = [];
    this.#setState(session.state ?? null, []);
    this.#moved = true;
    this.#listener();
  }

  // the run

  /** One AG-UI event. `at` is when it came, `replayed` that the server sent it before this page connected. */
  apply(event, at, replayed = false) {
    EVENTS[event.type]?.(this, event, at, replayed);
  }

  runStarted({ runId, parentRunId, metadata }, at, replayed) {
    this.settle(at); // a run that begins has the answers, from this page or another
    this.remove(`turn:${runId}`);
    if (this.find(`turn:${parentRunId}`)?.cutRun) this.remove(`turn:${parentRunId}`); // what follows is the rest of its answer
    this.remove("lost");
    this.run = { runId, at: this.run !== null && (this.run.runId === runId || this.run.isCut) ? this.run.at : at, started: at, first: null, last: null, deltas: 0, model: metadata?.model, replayed };
    this.#listener();
  }

  /** The page sent a run, or asked for the rest of one that was cut; the server has not answered yet. */
  runSent(runId, at, isCut = false) {
    this.remove(`turn:${runId}`);
    this.run = { runId, at, started: null, first: null, last: null, deltas: 0, replayed: false, isCut };
    this.#listener();
  }

  textStarted({ messageId }) {
    const item = this.find(messageId);
    if (item?.kind === "text" && !item.remembered) return this.#change(item, { done: false });
    this.#dropRemembered(messageId);
    this.#add({ kind: "text", id: messageId, text: "", done: false });
  }

  textAdded({ messageId, delta }, at) {
    const item = this.find(messageId) ?? this.#add({ kind: "text", id: messageId, text: "", done: false });
    item.text += delta;
    if (this.run) {
      this.run.first ??= at;
      this.run.last = at;
      this.run.deltas += 1;
    }
    this.#change(item);
  }

  ended(id) {
    const item = this.find(id);
    if (item) this.#change(item, { done: true });
  }

  reasoningStarted({ messageId }, at) {
    const item = this.find(messageId);
    if (item) this.#reorder(this.items.filter((each) => each !== item));
    this.#add({ kind: "reasoning", id: messageId, text: "", done: false, at });
  }

  reasoningAdded({ messageId, delta }) {
    const item = this.find(messageId) ?? this.#add({ kind: "reasoning", id: messageId, text: "", done: false });
    item.text += delta;
    this.#change(item);
  }

  reasoningEnded({ messageId }, at, replayed) {
    const item = this.find(messageId);
    if (item) this.#change(item, { done: true, seconds: replayed || !item.at ? null : (at - item.at) / 1000 });
  }

  callStarted({ toolCallId, toolCallName, parentMessageId }) {
    this.#dropRemembered(parentMessageId);
    this.#reorder(this.items.filter((item) => item.id !== toolCallId));
    this.#add({ kind: "call", id: toolCallId, name: toolCallName, messageId: parentMessageId ?? toolCallId, arguments: "", status: "writing" });
  }

  argumentsAdded({ toolCallId, delta }) {
    const item = this.find(toolCallId);
    if (item) this.#change(item, { arguments: item.arguments + delta });
  }

  callEnded({ toolCallId }, at) {
    const item = this.find(toolCallId);
    if (item) this.#change(item, { status: "running", at });
  }

  callAnswered({ toolCallId, messageId, content, metadata }, at, replayed) {
    const item = this.find(toolCallId);
    if (!item) return;
    const { text, images } = fromAgui({ id: messageId, role: "tool", content });
    const failed = metadata?.failed === true;
    const seconds = replayed || !item.at ? null : (at - item.at) / 1000;
    this.#change(item, { status: callOutcome(failed, text), failed, result: text, images, resultId: messageId, seconds, question: null });
  }

  activityShown({ messageId, activityType, content }) {
    const item = this.find(messageId) ?? this.#add({ kind: "activity", id: messageId });
    this.#change(item, { activity: activityType, content });
  }

  activityPatched({ messageId, patch }) {
    const item = this.find(messageId);
    if (item) this.#change(item, { content: patched(item.content, patch) ?? item.content });
  }

  stateReplaced({ snapshot }) {
    this.#setState(snapshot, differences(this.state ?? {}, snapshot ?? {}));
  }

  /** A patch that does not fit is left out: the server sends the whole state again when that matters. */
  statePatched({ delta }) {
    const next = patched(this.state ?? {}, delta);
    if (next !== null) this.#setState(next, differences(this.state ?? {}, next));
  }

  custom({ name, value }) {
    if (name === "holodeck.files") this.#files(value);
    if (name === "holodeck.history") this.#history(value);
    if (name === "holodeck.warning") this.notice(`warning:${this.run?.runId}:${value.code}`, "warning", value.message);
  }

  #history(value) {
    const text = historyWords(value ?? {});
    if (text) this.notice(`history:${this.run?.runId}`, "warning", text);
  }

  #files(notes) {
    const item = this.items.findLast((each) => each.kind === "user");
    if (item) this.#change(item, { notes });
  }

  runFinished({ runId, outcome, usage, result }, at) {
    this.ask((outcome?.interrupts ?? []).map((each) => ({ id: each.id, callId: each.toolCallId, tool: each.metadata?.tool, arguments: each.metadata?.arguments ?? "{}", expires: each.expiresAt })));
    for (const id of outcome?.pendingToolCallIds ?? []) if (this.find(id)) this.#change(this.find(id), { status: "client" });
    this.#endRun({ id: `turn:${runId}`, outcome: outcome?.type ?? "success", status: result?.status, usage: sumUsage(usage) }, at);
  }

  runFailed({ message, code, metadata, usage }, at) {
    this.#endRun({ id: `turn:${this.run?.runId}`, outcome: "error", message, code, reason: metadata?.reason, retryable: metadata?.retryable, usage: sumUsage(usage) }, at);
  }

  #endRun(turn, at) {
    const run = this.run;
    this.run = null;
    const answered = ["done", "failed", "rejected", "passed", "approval", "client"];
    for (const item of this.items) {
      if (item.kind === "call" && !answered.includes(item.status)) this.#change(item, { status: "stopped" });
      if ((item.kind === "text" || item.kind === "reasoning") && !item.done) this.#change(item, { done: true });
    }
    this.remove(turn.id);
    const marks = run && !run.replayed ? { total: at - run.at, first: run.first === null ? null : run.first - run.at, stream: run.first === null || run.last === null ? 0 : run.last - run.first, deltas: run.deltas } : null;
    const isCut = run?.isCut || (run?.started !== null && CUT.has(turn.code) && turn.reason !== "not_stored"); // a continuation that was refused can be asked for again
    this.#add({ kind: "turn", model: run?.model, marks, cutRun: isCut ? run?.runId : null, ...turn });
  }

  /** The conversation as the server has it: known items stay, new ones come, absent ones go; our own stay beside theirs. */
  messagesReplaced({ messages }) {
    const shown = messages.map(fromAgui).filter((message) => message.role !== "reasoning" && message.role !== "activity");
    const items = shown.flatMap((message) => this.#itemsOf(message));
    const kept = new Set(items.map((item) => item.id));
    /** @type {import("./types.d.ts").Item[]} */
    const before = [];
    const following = new Map();
    let behind = before;
    for (const item of this.items) {
      if (OWN.has(item.kind)) behind.push(item);
      else if (kept.has(item.id)) following.set(item.id, (behind = []));
    }
    this.#reorder([...before, ...items.flatMap((item) => [item, ...(following.get(item.id) ?? [])])]);
  }

  /** The items of one message, those that are known already with what they know besides. */
  #itemsOf(message) {
    if (message.role === "user") return [this.#known.get(message.id) ?? { kind: "user", id: message.id, text: message.text, files: message.files, parts: message.parts, images: message.images }];
    if (message.role === "tool") return this.#answered(message);
    const items = [];
    if (message.reasoning) items.push({ kind: "reasoning", id: `${message.id}:remembered`, text: message.reasoning, done: true });
    if (message.text) items.push(this.#known.get(message.id) ?? { kind: "text", id: message.id, text: message.text, done: true });
    for (const call of message.calls) {
      const made = { kind: "call", id: call.id, name: call.name, messageId: message.id, arguments: call.arguments, status: "running" };
      items.push(this.#known.get(call.id) ?? made);
      this.#known.set(call.id, items.at(-1));
    }
    return items;
  }

  #answered(message) {
    const item = this.#known.get(message.callId);
    const waits = item && (item.resultId === undefined || item.resultId === message.id);
    if (waits) this.#change(item, { status: callOutcome(message.failed, message.text), failed: message.failed, result: message.text, images: message.images, resultId: message.id, question: null });
    return [];
  }

  /** The events of a remembered message follow: they replace what is remembered of it. */
  #dropRemembered(messageId) {
    const isOld = (item) => item.remembered && (item.id === messageId || item.messageId === messageId || item.id === `${messageId}:remembered`);
    if (this.items.some(isOld)) this.#reorder(this.items.filter((item) => !isOld(item)));
  }

  #add(item) {
    this.#known.set(item.id, item);
    this.items.push(item);
    this.#moved = true;
    this.#change(item);
    return item;
  }

  #change(item, fields = {}) {
    Object.assign(item, fields);
    this.#changed.add(item);
    this.#listener();
  }

  #reorder(items) {
    const before = new Set(this.items);
    for (const item of before) item.dropped = true;
    for (const item of items) {
      item.dropped = false;
      if (!before.has(item)) this.#changed.add(item);
      this.#known.set(item.id, item);
    }
    this.items = items;
    this.#moved = true;
    this.#listener();
  }

  #setState(state, changes) {
    this.state = state;
    this.changes = changes;
    this.#changed.add(STATE);
    this.#listener();
  }
}

const EVENTS = {
  __proto__: null, // a type such as `constructor` is not known either
  RUN_STARTED: (c, event, at, replayed) => c.runStarted(event, at, replayed),
  RUN_FINISHED: (c, event, at) => c.runFinished(event, at),
  RUN_ERROR: (c, event, at) => c.runFailed(event, at),
  TEXT_MESSAGE_START: (c, event) => c.textStarted(event),
  TEXT_MESSAGE_CONTENT: (c, event, at) => c.textAdded(event, at),
  TEXT_MESSAGE_END: (c, event) => c.ended(event.messageId),
  REASONING_MESSAGE_START: (c, event, at) => c.reasoningStarted(event, at),
  REASONING_MESSAGE_CONTENT: (c, event) => c.reasoningAdded(event),
  REASONING_MESSAGE_END: (c, event, at, replayed) => c.reasoningEnded(event, at, replayed),
  TOOL_CALL_START: (c, event) => c.callStarted(event),
  TOOL_CALL_ARGS: (c, event) => c.argumentsAdded(event),
  TOOL_CALL_END: (c, event, at) => c.callEnded(event, at),
  TOOL_CALL_RESULT: (c, event, at, replayed) => c.callAnswered(event, at, replayed),
  STATE_SNAPSHOT: (c, event) => c.stateReplaced(event),
  STATE_DELTA: (c, event) => c.statePatched(event),
  ACTIVITY_SNAPSHOT: (c, event) => c.activityShown(event),
  ACTIVITY_DELTA: (c, event) => c.activityPatched(event),
  MESSAGES_SNAPSHOT: (c, event) => c.messagesReplaced(event),
  CUSTOM: (c, event) => c.custom(event),
};

function patched(value, operations) {
  try {
    return apply(value, operations);
  } catch (error) {
    if (error instanceof PatchError) return null;
    throw error;
  }
}

const usageOf = (usage) => ({ input: usage.prompt_tokens, output: usage.completion_tokens });

const sumUsage = (list) => (list ?? []).reduce((sum, each) => addUsage(sum, { input: each.inputTokens, output: each.outputTokens }), null);

const addUsage = (sum, more) => ({ input: (sum?.input ?? 0) + (more.input ?? 0), output: (sum?.output ?? 0) + (more.output ?? 0) });
