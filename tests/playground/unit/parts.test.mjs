import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test from "node:test";

import { followRun, Problem } from "../../../src/holodeck/server/playground/client.js";
import { curlFor } from "../../../src/holodeck/server/playground/curl.js";
import { EventLog, matches } from "../../../src/holodeck/server/playground/event-log.js";
import { Identity } from "../../../src/holodeck/server/playground/identity.js";
import { troubleOf } from "../../../src/holodeck/server/playground/health.js";
import { PageTools } from "../../../src/holodeck/server/playground/page-tools.js";
import { apply, differences, PatchError } from "../../../src/holodeck/server/playground/patch.js";
import { Sessions, titleOf } from "../../../src/holodeck/server/playground/sessions.js";
import { numberOf, SseReader } from "../../../src/holodeck/server/playground/sse.js";

const PATCHES = [
  [{ a: 1 }, [{ op: "add", path: "/b", value: 2 }], { a: 1, b: 2 }],
  [{ a: [1, 3] }, [{ op: "add", path: "/a/1", value: 2 }], { a: [1, 2, 3] }],
  [{ a: [1] }, [{ op: "add", path: "/a/-", value: 2 }], { a: [1, 2] }],
  [{ a: 1, b: 2 }, [{ op: "remove", path: "/a" }], { b: 2 }],
  [{ a: 1 }, [{ op: "replace", path: "", value: [] }], []],
  [{ a: { b: 1 } }, [{ op: "move", from: "/a/b", path: "/c" }], { a: {}, c: 1 }],
  [{ a: 1 }, [{ op: "copy", from: "/a", path: "/b" }], { a: 1, b: 1 }],
  [{ "a/b": 1, "c~d": 2 }, [{ op: "replace", path: "/a~1b", value: 3 }, { op: "test", path: "/c~0d", value: 2 }], { "a/b": 3, "c~d": 2 }],
];
for (const [before, operations, after] of PATCHES) {
  test(`patch ${JSON.stringify(operations)}`, () => {
    const frozen = JSON.stringify(before);
    assert.deepEqual(apply(before, operations), after);
    assert.equal(JSON.stringify(before), frozen);
  });
}

const BAD = [
  { op: "remove", path: "/x" }, { op: "replace", path: "/x", value: 1 }, { op: "add", path: "/x/y", value: 1 }, { op: "add", path: "/l/5", value: 1 }, { op: "add", path: "/l/01", value: 1 },
  { op: "add", path: "/__proto__/x", value: 1 }, { op: "add", path: "/constructor", value: 1 }, { op: "test", path: "/l", value: 2 }, { op: "nothing", path: "/l" }, { op: "add", path: "x", value: 1 },
];
for (const operation of BAD) test(`no patch ${JSON.stringify(operation)}`, () => assert.throws(() => apply({ l: [1] }, [operation]), PatchError));

test("differences name the places", () => {
  assert.deepEqual(differences({ a: 1, b: { c: 2 }, d: 0 }, { a: 1, b: { c: 3 }, e: 1 }).map(({ path, kind }) => `${kind} ${path}`), ["changed /b/c", "removed /d", "added /e"]);
});

test("frames are the same however the stream is cut", () => {
  const stream = ': hi\n\nid: r:0\ndata: {"a":1}\n\ndata: x\ndata: y\n\nid:r:1\r\ndata:\u{1f98a}\r\n\r\nevent: e\n\ndata: last';
  const expected = [{ id: "r:0", data: '{"a":1}' }, { id: "", data: "x\ny" }, { id: "r:1", data: "\u{1f98a}" }];
  for (let size = 1; size <= stream.length; size += 1) {
    const found = [];
    const reader = new SseReader();
    for (let i = 0; i < stream.length; i += size) reader.push(stream.slice(i, i + size), (frame) => found.push(frame));
    assert.deepEqual(found, expected);
  }
  assert.deepEqual([numberOf("a:b:12", "a:b"), numberOf("x:1", "y"), numberOf("r:-1", "r"), numberOf("", "r")], [12, null, null, null]);
});

/** A server that breaks off after so many frames, each time. */
function flaky(events, perConnection, { refusals = [] } = {}) {
  const asked = [];
  const answer = (from) => {
    if (refusals.length > 0) throw refusals.shift();
    const frames = events.slice(from, from + perConnection).map((event, i) => `id: r:${from + i}\ndata: ${JSON.stringify(event)}\n\n`);
    return { status: 200, body: new Blob([frames.join("").slice(0, from + perConnection < events.length ? -3 : undefined)]).stream() };
  };
  return {
    asked,
    goOn: async (cut) => { asked.push(`continue ${cut}`); return answer(0); },
    post: async () => { asked.push("post"); return answer(0); },
    events: async (_, last) => { asked.push(last); return answer(last + 1); },
  };
}
const EVENTS = [{ type: "RUN_STARTED" }, ...Array.from({ length: 20 }, (_, n) => ({ type: "X", n })), { type: "RUN_FINISHED" }];
const pause = async () => {};

for (const size of [2, 3, 7, 50]) {
  test(`a connection that breaks after ${size} frames loses and doubles nothing`, async () => {
    const received = [];
    const server = flaky(EVENTS, size);
    await followRun({ server, runId: "r", input: {}, signal: new AbortController().signal, onEvent: (event) => received.push(event), lost: () => {}, pause });
    assert.deepEqual(received, EVENTS);
    assert.equal(server.asked[0], "post");
  });
}

test("the rest of a run that was cut is followed by the id in its first event", async () => {
  const events = [{ type: "RUN_STARTED", runId: "r" }, ...EVENTS.slice(1)];
  for (const size of [2, 3, 50]) {
    const server = flaky(events, size);
    const { goOn } = server;
    server.goOn = async (cut) => { // the first connection breaks before any event
      const answer = await goOn(cut);
      return server.asked.length > 1 ? answer : { status: 200, body: new Blob([]).stream() };
    };
    const received = [];
    const runs = new Set();
    const onEvent = (event, { runId }) => { received.push(event); runs.add(runId); };
    await followRun({ server, runId: "cut", isCut: true, signal: new AbortController().signal, onEvent, lost: () => assert.ok(server.asked.length < 50, "it never ends"), pause });
    assert.deepEqual([received, [...runs]], [events, ["r"]]);
    assert.deepEqual(server.asked.slice(0, 2), ["continue cut", "continue cut"]);
    assert.ok(server.asked.slice(2).every((last) => last >= 0), `it reads on after the first event: ${server.asked}`);
  }
});

test("passing problems are waited out, with the server's own time; others are told", async () => {
  const waits = [];
  const passing = [new TypeError("network"), new Problem(503, { type: "x/not-ready", retry_after: 2 })];
  const server = flaky(EVENTS, 50, { refusals: passing });
  await followRun({ server, runId: "r", input: {}, signal: new AbortController().signal, onEvent: () => {}, lost: ({ delay }) => waits.push(delay), pause });
  assert.deepEqual(waits, [300, 2000]);
  const refused = flaky(EVENTS, 50, { refusals: [new Problem(422, { type: "x/invalid-request", detail: "no" })] });
  await assert.rejects(followRun({ server: refused, runId: "r", input: {}, signal: new AbortController().signal, onEvent: () => {}, lost: () => {}, pause }), { code: "invalid-request", message: "no" });
});

test("curl commands take the credential from the shell", () => {
  const command = curlFor("http://127.0.0.1:1", { method: "GET", path: "/runs/r" }, true);
  assert.equal(command, `curl -N 'http://127.0.0.1:1/runs/r' -H "Authorization: Bearer $HOLODECK_KEY"`);
});

test("a credential is in a header, and in storage only if that was asked for", () => {
  const kept = new Map();
  const storage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name) };
  const someone = new Identity(storage);
  assert.deepEqual(someone.headers, {});
  someone.use("secret", false);
  assert.deepEqual(someone.headers, { Authorization: "Bearer secret" });
  assert.equal(kept.size, 0);
  assert.ok(!JSON.stringify(someone).includes("secret"));
  someone.use("secret", true);
  assert.ok(new Identity(storage).isSignedIn);
  someone.principal = { scopes: ["chat"] };
  assert.ok(someone.may("chat") && !someone.may("approve"));
  someone.forget();
  assert.ok(!new Identity(storage).isSignedIn && someone.may("approve"));
});

test("curl commands survive a shell", () => {
  const body = { text: `it's "quoted" $HOME \`x\` \\ \n ${"\u{1f98a}"}` };
  const command = curlFor("http://127.0.0.1:1", { method: "POST", path: "/awp", body }).replace("curl -N", "printf '%s\\0'");
  const words = execFileSync("sh", ["-c", command]).toString().split("\0");
  assert.deepEqual(JSON.parse(words[4]), body);
  assert.equal(words[0], "http://127.0.0.1:1/awp");
});

test("the log keeps the newest events, and filters by words", () => {
  const log = new EventLog();
  for (let n = 0; n < 20_001; n += 1) log.add("r", { type: "TEXT_MESSAGE_CONTENT", delta: String(n) }, { data: `{"delta":"${n}"}`, number: n }, 0);
  assert.deepEqual([log.entries.length, log.dropped, log.entries.at(-1).about], [15_001, 5_000, "20000"]);
  const entry = { type: "TOOL_CALL_START", data: '{"toolCallName":"weather"}' };
  assert.deepEqual([["tool"], ["weather"], ["-tool"], ["tool", "-args"], ["text"], []].map((words) => matches(entry, words)), [true, true, false, true, false, true]);
});

test("sessions outlive broken storage", () => {
  const kept = new Map([["holodeck.sessions", "{broken"]]);
  const sessions = new Sessions({ getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) });
  assert.deepEqual(sessions.list(), []);
  sessions.update("a", { title: "A", at: 1 });
  sessions.update("b", { title: "B", at: 2 });
  sessions.update("a", { title: "A2" });
  assert.deepEqual(sessions.list().map((each) => each.title), ["B", "A2"]);
  sessions.remove("b");
  assert.deepEqual(sessions.list().map((each) => each.id), ["a"]);
  assert.equal(titleOf(`  one\n two ${"x".repeat(80)}`).length, 48);
});

test("a frontend tool checks what it is given", () => {
  const painted = [];
  const tools = new PageTools((colour) => painted.push(colour) > 0 && colour !== "nonsense", "Europe/Oslo");
  assert.deepEqual(tools.offer(), { tools: [], context: [], forwardedProps: { timezone: "Europe/Oslo" } });
  tools.isOffered = true;
  assert.equal(tools.offer().tools[0].name, "change_background");
  const results = ['{"colour":"red"}', '{"colour":"nonsense"}', '{"colour":1}', "{broken", "null", '{"colour":"none"}'].map((text) => tools.run("change_background", text).failed);
  assert.deepEqual(results, [false, true, true, true, true, false]);
  assert.deepEqual(painted, ["red", "nonsense", null]);
  assert.ok(tools.run("other", "{}").failed);
});

test("trouble is told in a sentence", () => {
  const health = (fields) => troubleOf({ status: "healthy", state: "running", tool_servers: [], ...fields });
  assert.equal(health({}), null);
  assert.equal(health({ status: "degraded" }), null);
  assert.match(troubleOf(null).text, /does not answer/);
  assert.match(health({ status: "unhealthy", state: "initializing" }).text, /starting/);
  const down = { name: "todos", ready: false, required: true, detail: "It exited." };
  assert.deepEqual(health({ tool_servers: [down] }), { tone: "error", text: "Tool server down: todos.", detail: "It exited. The agent needs it." });
});
