import assert from "node:assert/strict";
import test from "node:test";

import { markdownOf } from "../../../src/holodeck/server/playground/export.js";
import { activityWords, announcementOf, callOutcome, historyWords, lostConnection } from "../../../src/holodeck/server/playground/words.js";

const turn = (outcome, fields = {}) => ({ kind: "turn", id: "turn:r", outcome, ...fields });
const ANNOUNCED = [
  ["nothing yet", { items: [] }, ""],
  ["a page that was loaded", { items: [{ ...turn("success"), id: "after:m" }] }, ""],
  ["a run that is sent", { run: { started: null }, items: [] }, null],
  ["a run", { run: { started: 1 }, items: [turn("success")] }, "The agent is answering."],
  ["an answer", { items: [turn("success")] }, "The answer is complete."],
  ["a stop", { items: [turn("cancelled")] }, "The answer was stopped."],
  ["a failure", { items: [turn("error", { message: "No key." })] }, "There is no answer: No key."],
  ["a question", { questions: [{}], items: [turn("interrupt")] }, "The agent asks for your approval."],
  ["a notice", { items: [turn("success"), { kind: "notice", id: "lost", text: "It was lost." }] }, "It was lost."],
];
for (const [name, fields, said] of ANNOUNCED) test(`announced: ${name}`, () => assert.equal(announcementOf({ run: null, questions: [], ...fields }), said));

test("a lost connection is described by what is known", () => {
  assert.match(lostConnection({ isAccepted: false, isServerGone: true }).text, /not accepted yet/);
  assert.match(lostConnection({ isAccepted: true, isServerGone: true }).detail, /not known/);
  assert.match(lostConnection({ isAccepted: true, isServerGone: false }).detail, /continues/);
});

test("a server that refuses for now is quoted", () => {
  const refusal = "The disk is full.";
  assert.match(lostConnection({ isAccepted: false, isServerGone: false, refusal }).detail, /^The disk is full\. This page sends the message again/);
  assert.match(lostConnection({ isAccepted: true, isServerGone: false, refusal }).detail, /^The disk is full\. This page keeps trying\.$/);
});

test("a person's no is no failure", () => {
  assert.equal(callOutcome(true, "The user refused this call. Do not try it again."), "rejected");
  assert.equal(callOutcome(true, "Not carried out: the user continued without approving it."), "passed");
  assert.equal(callOutcome(true, "Not carried out: the user went on without approving it."), "passed"); // as older versions stored it
  assert.equal(callOutcome(true, "the disk is full"), "failed");
  assert.equal(callOutcome(false, "The user refused this call."), "done");
});

test("activities are sentences", () => {
  assert.deepEqual(activityWords("tool_server", { server: "todo", status: "restarting" }), { text: "Tool server todo: restarting", fraction: null, rest: null });
  assert.deepEqual(activityWords("tool_progress", { tool: "load", progress: 3, total: 4, message: "rows" }), { text: "load: 75 %, rows", fraction: 0.75, rest: null });
  assert.equal(activityWords("tool_progress", { tool: "load", progress: 3, total: null, message: "" }).text, "load: 3");
  assert.deepEqual(activityWords("my_work", { done: 3 }), { text: "my work · done: 3", fraction: null, rest: null });
  assert.deepEqual(activityWords("deep", { a: { b: 1 } }).rest, { a: { b: 1 } });
  for (const odd of [null, "text", [1], 7]) assert.equal(typeof activityWords("x", odd).text, "string");
});

test("what became of the history", () => {
  assert.match(historyWords({ adopted: 2, left_out: 3 }), /does not know this session.*2 messages.*Its tool calls and results were left out/); // left_out counts messages, too
  assert.match(historyWords({ left_out: 3 }), /does not see the messages above/);
  assert.match(historyWords({ messages: 5, summarized: true }), /summary of the first 5/);
  assert.equal(historyWords({ rewound: 2 }), "");
});

test("a session as Markdown", () => {
  const session = {
    session_id: "s-1",
    messages: [
      { role: "user", content: [{ text: "See" }, { mime_type: "image/png", filename: "a.png" }] },
      { role: "assistant", content: "Looking.", tool_calls: [{ name: "run", arguments: "{\"a\": \"`x`\"}" }] },
      { role: "tool", name: "run", content: "```\nhi\n```", failed: false },
      { role: "assistant", content: "Half", cut: "length" },
    ],
    pending: { questions: [{ tool: "delete", arguments: "{}" }] },
  };
  const text = markdownOf("Plan", session);
  assert.match(text, /^# Plan\n\nSession `s-1`\n\n## You\n\nSee\n\n\[image\/png: a.png\]\n\n## Agent\n\nLooking\.\n\n> Tool `run` `` \{"a": "`x`"\} ``\n\n> Result of `run`:\n\n````\n```\nhi\n```\n````/);
  assert.match(text, /Half\n\n\*This answer is not complete\.\*\n\n> Waits for approval: `delete` `\{\}`\n$/);
});
