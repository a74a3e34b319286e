import assert from "node:assert/strict";
import test from "node:test";

import { Conversation } from "../../../src/holodeck/server/playground/conversation.js";
import { toAgui } from "../../../src/holodeck/server/playground/messages.js";

const STORY = [
  { type: "RUN_STARTED", threadId: "t", runId: "r", metadata: { model: "m" } },
  { type: "STATE_SNAPSHOT", snapshot: { n: 0 } },
  { type: "MESSAGES_SNAPSHOT", messages: [{ id: "u0", role: "user", content: "before" }, { id: "a0", role: "assistant", content: "yes" }] },
  { type: "MESSAGES_SNAPSHOT", messages: [{ id: "u0", role: "user", content: "before" }, { id: "a0", role: "assistant", content: "yes" }, { id: "u1", role: "user", content: "go" }] },
  { type: "STEP_STARTED", stepName: "step-1" },
  { type: "REASONING_START", messageId: "x-span" },
  { type: "REASONING_MESSAGE_START", messageId: "x", role: "reasoning" },
  { type: "REASONING_MESSAGE_CONTENT", messageId: "x", delta: "hm " },
  { type: "REASONING_MESSAGE_CONTENT", messageId: "x", delta: "ok" },
  { type: "REASONING_MESSAGE_END", messageId: "x" },
  { type: "REASONING_END", messageId: "x-span" },
  { type: "TEXT_MESSAGE_START", messageId: "a1", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta: "I " },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta: "look" },
  { type: "TEXT_MESSAGE_END", messageId: "a1" },
  { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "weather", parentMessageId: "a1" },
  { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"city"' },
  { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: ':"Oslo"}' },
  { type: "TOOL_CALL_END", toolCallId: "c1" },
  { type: "TOOL_CALL_RESULT", toolCallId: "c1", messageId: "t1", content: "4", role: "tool" },
  { type: "STATE_DELTA", delta: [{ op: "replace", path: "/n", value: 1 }] },
  { type: "STEP_FINISHED", stepName: "step-1" },
  { type: "TEXT_MESSAGE_START", messageId: "a2", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "a2", delta: "cold" },
  { type: "TEXT_MESSAGE_END", messageId: "a2" },
  { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "success" }, usage: [{ inputTokens: 3, outputTokens: 2 }] },
];
const SAID = ["user before", "text yes", "user go", "reasoning hm ok", "text I look", 'call weather {"city":"Oslo"} done 4', "text cold"];

/** What GET /sessions would say after so many events. */
function sessionAfter(count) {
  const messages = [{ id: "u0", role: "user", content: "before" }, { id: "a0", role: "assistant", content: "yes" }, { id: "u1", role: "user", content: "go" }];
  const seen = STORY.slice(0, count).map((event) => event.type);
  if (seen.includes("STEP_FINISHED")) {
    messages.push({ id: "a1", role: "assistant", content: "I look", reasoning: "hm ok", tool_calls: [{ id: "c1", name: "weather", arguments: '{"city":"Oslo"}' }] });
    messages.push({ id: "t1", role: "tool", call_id: "c1", name: "weather", content: "4" });
  }
  const isOver = seen.includes("RUN_FINISHED");
  if (isOver) messages.push({ id: "a2", role: "assistant", content: "cold", tokens_used: { prompt_tokens: 3, completion_tokens: 2 } });
  return { messages, pending: null, state: { n: seen.includes("STATE_DELTA") ? 1 : 0 }, active_runs: isOver ? [] : ["r"] };
}

function told(conversation) {
  return conversation.items.filter((item) => item.kind !== "turn").map((item) => {
    if (item.kind === "call") return `call ${item.name} ${item.arguments} ${item.status} ${item.result}`;
    return `${item.kind} ${item.text}`;
  });
}

function listening() {
  const conversation = new Conversation();
  conversation.load(sessionAfter(0));
  return conversation;
}

test("a run becomes items", () => {
  const conversation = listening();
  STORY.forEach((event, i) => conversation.apply(event, i * 10));
  assert.deepEqual(told(conversation), SAID);
  assert.deepEqual(conversation.state, { n: 1 });
  const turn = conversation.items.at(-1);
  assert.deepEqual([turn.outcome, turn.usage, turn.model], ["success", { input: 3, output: 2 }, "m"]);
  assert.deepEqual([turn.marks.first, turn.marks.total, turn.marks.deltas], [120, 250, 3]);
  assert.equal(conversation.run, null);
});

test("a page that is loaded after any event and receives the run again has the same items, each once", () => {
  for (let cut = 0; cut <= STORY.length; cut += 1) {
    const conversation = new Conversation();
    conversation.load(sessionAfter(cut));
    if (cut < STORY.length) STORY.forEach((event) => conversation.apply(event, 0, true));
    assert.deepEqual(told(conversation), SAID, `loaded after ${cut} events`);
    assert.equal(new Set(conversation.items.map((item) => item.id)).size, conversation.items.length);
    assert.deepEqual(conversation.state, { n: 1 });
  }
});

test("changes are told once, and only what changed", () => {
  const conversation = listening();
  STORY.slice(0, 13).forEach((event) => conversation.apply(event, 0));
  conversation.takeChanges();
  conversation.apply(STORY[13], 0);
  const { items, moved, state } = conversation.takeChanges();
  assert.deepEqual([items.map((item) => item.id), moved, state], [["a1"], false, false]);
  assert.deepEqual(conversation.takeChanges(), { items: [], moved: false, state: false });
});

test("a snapshot drops what the server does not have and keeps what only the page knows", () => {
  const conversation = listening();
  STORY.forEach((event) => conversation.apply(event, 0));
  conversation.notice("n", "warning", "careful");
  conversation.apply({ type: "MESSAGES_SNAPSHOT", messages: [{ id: "u0", role: "user", content: "before" }, { id: "u9", role: "user", content: "new" }] }, 0);
  assert.deepEqual(conversation.items.map((item) => `${item.kind} ${item.id}`), ["user u0", "turn after:a0", "reasoning x", "turn turn:r", "notice n", "user u9"]);
});

test("interrupts ask, and a resumed run answers them", () => {
  const conversation = listening();
  STORY.slice(0, 19).forEach((event) => conversation.apply(event, 0));
  const interrupt = { id: "i1", reason: "tool_call", toolCallId: "c1", metadata: { tool: "weather", arguments: "{}" } };
  conversation.apply({ type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "interrupt", interrupts: [interrupt] } }, 0);
  assert.equal(conversation.find("c1").status, "approval");
  assert.equal(conversation.questions[0].id, "i1");
  conversation.settle(60_000); // a person took a minute to answer
  conversation.apply({ type: "RUN_STARTED", threadId: "t", runId: "r2" }, 60_100);
  conversation.apply({ type: "TOOL_CALL_RESULT", toolCallId: "c1", messageId: "t1", content: "refused", role: "tool", metadata: { failed: true } }, 60_500);
  assert.deepEqual([conversation.find("c1").status, conversation.questions], ["failed", []]);
  assert.equal(conversation.find("c1").seconds, 0.5);
});

test("calls that nobody answered are not left running", () => {
  const conversation = listening();
  STORY.slice(0, 18).forEach((event) => conversation.apply(event, 0));
  conversation.apply({ type: "RUN_ERROR", message: "broke", code: "model-error", metadata: { reason: "upstream_auth" } }, 0);
  assert.equal(conversation.find("c1").status, "stopped");
  assert.deepEqual([conversation.items.at(-1).outcome, conversation.items.at(-1).reason], ["error", "upstream_auth"]);
});

test("a run that the server cut can be continued, and its card goes when the rest begins", () => {
  const failed = (code, count = 14) => {
    const conversation = listening();
    conversation.runSent("r", 0);
    STORY.slice(0, count).forEach((event) => conversation.apply(event, 0));
    conversation.apply({ type: "RUN_ERROR", message: "cut", code }, 0);
    return conversation;
  };
  const codes = [["interrupted"], ["shutting-down"], ["model-error"], ["shutting-down", 0]]; // the last was never accepted
  assert.deepEqual(codes.map((each) => failed(...each).items.at(-1).cutRun), ["r", "r", null, null]);
  const conversation = failed("interrupted");
  conversation.runSent("r", 0, true);
  conversation.apply({ type: "RUN_ERROR", message: "no", code: "session-busy" }, 0);
  assert.deepEqual(conversation.items.filter((item) => item.cutRun).map((item) => [item.cutRun, item.code]), [["r", "session-busy"]]);
  conversation.apply({ type: "RUN_STARTED", runId: "r2", parentRunId: "r" }, 0); // asked for by another tab
  conversation.apply({ type: "TEXT_MESSAGE_CONTENT", messageId: "a2", delta: "at it" }, 0);
  conversation.apply({ type: "RUN_FINISHED", runId: "r2" }, 0);
  assert.deepEqual(conversation.items.slice(-3).map((item) => item.text ?? item.id), ["I look", "at it", "turn:r2"]);
});

test("a run that the server cut can be continued on a page that is loaded again, and not one whose message was not stored", () => {
  const conversation = new Conversation();
  const messages = [{ id: "u1", role: "user", content: "count" }, { id: "a1", role: "assistant", content: "one", cut: "shutting-down" }];
  conversation.load({ messages, pending: null, state: null, active_runs: [], cut_run: "r" });
  assert.deepEqual(conversation.items.map((item) => [item.kind, item.cutRun, item.outcome]).at(-1), ["turn", "r", "cut"]);
  conversation.apply({ type: "RUN_STARTED", runId: "r2", parentRunId: "r" }, 0);
  assert.equal(conversation.items.some((item) => item.kind === "turn"), false);
  conversation.load({ messages, pending: null, state: null, active_runs: [], cut_run: null });
  assert.equal(conversation.items.at(-1).cutRun, null);
  conversation.runSent("r3", 0);
  conversation.apply({ type: "RUN_STARTED", runId: "r3" }, 0);
  conversation.apply({ type: "RUN_ERROR", message: "no", code: "shutting-down", metadata: { reason: "not_stored" } }, 0);
  assert.equal(conversation.items.at(-1).cutRun, null);
});

test("an answer that a person stopped is marked as stopped, also on a page that is loaded again", () => {
  const conversation = new Conversation();
  const messages = [{ id: "u1", role: "user", content: "count" }, { id: "a1", role: "assistant", content: "one", cut: "stopped" }];
  conversation.load({ messages, pending: null, state: null, active_runs: [], cut_run: null });
  assert.equal(conversation.items.at(-1).outcome, "cancelled");
});

test("each answer that was cut is marked on a page that is loaded again, also one whose run continued", () => {
  const conversation = new Conversation();
  const messages = [
    { id: "u1", role: "user", content: "count" }, { id: "a1", role: "assistant", content: "one", cut: "interrupted" }, { id: "a2", role: "assistant", content: "one two" },
    { id: "u2", role: "user", content: "look" }, { id: "a3", role: "assistant", content: "", cut: "interrupted", tool_calls: [{ id: "c", name: "look", arguments: "{}" }] },
    { id: "t", role: "tool", tool_call_id: "c", content: "seen" }, { id: "a4", role: "assistant", content: "done" },
  ];
  conversation.load({ messages, pending: null, state: null, active_runs: [], cut_run: null });
  assert.deepEqual(conversation.items.map((item) => item.outcome ?? item.id), ["u1", "a1", "cut", "a2", "success", "u2", "c", "a4", "success"]);
  conversation.apply({ type: "TEXT_MESSAGE_START", messageId: "a1", role: "assistant" }, 0, true);
  assert.equal(conversation.items.some((item) => item.outcome === "cut"), false, "its events follow");
});

test("a patch that does not fit leaves the state as it was", () => {
  const conversation = listening();
  conversation.apply({ type: "STATE_SNAPSHOT", snapshot: { a: [1] } }, 0);
  conversation.apply({ type: "STATE_DELTA", delta: [{ op: "remove", path: "/b" }] }, 0);
  assert.deepEqual(conversation.state, { a: [1] });
  conversation.apply({ type: "STATE_DELTA", delta: [{ op: "add", path: "/a/-", value: 2 }] }, 0);
  assert.deepEqual(conversation.changes, [{ path: "/a/1", kind: "added", after: 2 }]);
});

test("events that are not known are passed over", () => {
  const conversation = listening();
  for (const type of ["RAW", "SUBAGENT_STARTED", "NEVER_HEARD_OF", "__proto__", "constructor"]) conversation.apply({ type }, 0);
  assert.equal(conversation.items.length, 4);
});

test("the conversation goes back to the server as AG-UI messages, results behind their calls", () => {
  const conversation = listening();
  STORY.forEach((event) => conversation.apply(event, 0));
  const sent = toAgui(conversation.items);
  assert.deepEqual(sent.map((message) => `${message.role} ${message.id}`), ["user u0", "assistant a0", "user u1", "assistant a1", "tool t1", "assistant a2"]);
  assert.equal(sent[3].toolCalls[0].function.arguments, '{"city":"Oslo"}');
  assert.equal(sent[4].toolCallId, "c1");
});
