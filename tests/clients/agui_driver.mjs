// Plays scenarios with a real HttpAgent: node agui_driver.mjs <package> <scenarios on stdin >results on stdout
// The package is "@ag-ui/client" or an older version under another name. One JSON line per scenario, in their order.
// A scenario is {name, url, wire: "sse" | "proto", thread?, state?, runs: [...]}; a run is
//   {say?, fresh?, answer?, resume?, tools?, context?, props?, on?: {event, do: "abort" | "stop"}, replay?: wires}
//   fresh: a client that knows nothing yet · answer: content for each pending frontend call · resume: answers to interrupts
//   replay: the run is read once more, over each of these wires
import { json } from "node:stream/consumers";

const [library = "@ag-ui/client"] = process.argv.slice(2);
const { HttpAgent } = await import(library);
const PROTOBUF = "application/vnd.ag-ui.event+proto";

let warnings = [];
console.warn = (...said) => warnings.push(said.map(String).join(" ").split("\n")[0]);
console.error = (...said) => warnings.push(said.map(String).join(" ").split("\n")[0]);

class Client extends HttpAgent {
  constructor({ wire, ...config }) {
    super({ ...config, fetch: (url, init) => this.remember(url, init) });
    this.wire = wire;
  }
  requestInit(input) {
    const init = super.requestInit(input);
    if (this.wire === "proto") init.headers = { ...init.headers, Accept: PROTOBUF };
    return init;
  }
  async remember(url, init) {
    const response = await fetch(url, init);
    this.http = { status: response.status, contentType: response.headers.get("content-type") };
    return response;
  }
}

// Reads a run again: the same pipeline behind GET instead of POST.
class Reader extends Client {
  requestInit(input) {
    const { headers, signal } = super.requestInit(input);
    return { method: "GET", headers, signal };
  }
}

const runUrl = (scenario, runId) => new URL(`/runs/${encodeURIComponent(runId)}`, scenario.url).href;

async function follow(agent, parameters, on = () => {}) {
  warnings = [];
  const told = { events: [], finished: null, runError: null };
  const subscriber = {
    onEvent: ({ event }) => { told.events.push(structuredClone(event)); on(event); },
    onRunErrorEvent: ({ event }) => { told.runError = event; },
    onRunFinishedEvent: ({ outcome, interrupts, pendingToolCallIds, result }) => {
      told.finished = { outcome, interrupts, pendingToolCallIds, result };
    },
  };
  try {
    const { result, newMessages } = await agent.runAgent(parameters, subscriber);
    Object.assign(told, { outcome: "resolved", result, newMessages });
  } catch (error) {
    const { name, message, status, payload } = error;
    Object.assign(told, { outcome: "rejected", error: { name, message, status, payload } });
  }
  return structuredClone({ ...told, warnings, http: agent.http, messages: agent.messages, state: agent.state });
}

function reaction(scenario, run, agent, runId) {
  let reacted = false;
  return (event) => {
    if (reacted || event.type !== run.on?.event) return;
    reacted = true;
    if (run.on.do === "abort") agent.abortRun();
    else fetch(`${runUrl(scenario, runId)}/stop`, { method: "POST" });
  };
}

function prepare(agent, run, before, runId) {
  if (run.answer !== undefined) {
    for (const [i, toolCallId] of pendingCalls(agent.messages).entries()) {
      agent.addMessage({ id: `${runId}-answer-${i}`, role: "tool", toolCallId, content: run.answer });
    }
  }
  if (run.say !== undefined) agent.addMessage({ id: `${runId}-user`, role: "user", content: run.say });
  const { tools = [], context = [], props = {}, resume } = run;
  const parameters = { runId, tools, context, forwardedProps: props };
  const open = before?.finished?.interrupts ?? [];
  if (resume) parameters.resume = resume.map((entry, i) => ({ interruptId: open[i]?.id ?? "unknown", ...entry }));
  return parameters;
}

function pendingCalls(messages) {
  const answered = new Set(messages.map((message) => message.toolCallId));
  return messages.flatMap((message) => message.toolCalls ?? []).map(({ id }) => id).filter((id) => !answered.has(id));
}

async function replay(scenario, runId, wire) {
  const reader = new Reader({ url: `${runUrl(scenario, runId)}/events`, wire, threadId: scenario.thread });
  return follow(reader, { runId });
}

async function play(scenario) {
  const fresh = () => new Client({
    url: scenario.url, wire: scenario.wire, threadId: scenario.thread, initialMessages: [], initialState: scenario.state,
  });
  let agent = fresh();
  const runs = [];
  for (const [i, run] of scenario.runs.entries()) {
    if (run.fresh) agent = fresh();
    const runId = `${scenario.thread}-run-${i}`;
    const parameters = prepare(agent, run, runs.at(-1), runId);
    const played = { runId, ...(await follow(agent, parameters, reaction(scenario, run, agent, runId))) };
    if (run.replay) {
      played.replayed = {};
      for (const wire of run.replay) played.replayed[wire] = await replay(scenario, runId, wire);
    }
    runs.push(played);
  }
  return { name: scenario.name, runs };
}

for (const scenario of await json(process.stdin)) {
  process.stdout.write(JSON.stringify(await play(scenario)) + "\n");
}
