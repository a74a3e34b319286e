// Plays scenarios with clients that send a key: node keyed_driver.mjs <scenarios on stdin >results on stdout
// A scenario is {name, client, url, headers}; the result has the types of the events, or the error.
import { json } from "node:stream/consumers";
import { HttpAgent } from "@ag-ui/client";
import { CopilotKitCore } from "@copilotkit/core";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
import { Message } from "@a2a-js/sdk";
import OpenAI from "openai";

globalThis.window = globalThis; // the core looks for a runtime only where there is a window
console.warn = console.error = () => {};

async function agui({ url, headers }) {
  const agent = new HttpAgent({ url: `${url}/awp`, headers });
  return play(agent, () => agent.runAgent());
}

async function copilotkit({ url, headers }) {
  const core = new CopilotKitCore({ runtimeUrl: `${url}/copilotkit`, headers });
  const status = await new Promise((resolve) => {
    core.subscribe({ onRuntimeConnectionStatusChanged: ({ status }) => { if (status === "connected" || status === "error") resolve(status); } });
  });
  if (status === "error") return { events: [], error: "no connection" };
  const agent = core.getAgent("default");
  return play(agent, () => core.runAgent({ agent }));
}

const outcome = (asked) => asked.then(
  (events) => ({ events, error: null }),
  (error) => ({ events: [], error: `${error.constructor.name}: ${error.message}` }),
);

async function openai({ url, headers }) {
  const apiKey = (headers.Authorization ?? "Bearer wrong").replace("Bearer ", "");
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
  return outcome(client.responses.create({ model: "tester", input: "hi" }).then(({ output }) => output.map(({ type }) => type)));
}

async function a2a({ url, headers }) {
  const fetchImpl = (address, init) => fetch(address, { ...init, headers: { ...init?.headers, ...headers } });
  const transports = [new JsonRpcTransportFactory({ fetchImpl })];
  const client = await new ClientFactory({ transports, cardResolver: new DefaultAgentCardResolver({ fetchImpl }) }).createFromUrl(url);
  const message = Message.fromJSON({ messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text: "hi" }] });
  return outcome(client.sendMessage({ message }).then(({ artifacts }) => artifacts.map(({ name }) => name)));
}

async function play(agent, run) {
  const events = [];
  agent.subscribe({ onEvent: ({ event }) => { events.push(event.type); } });
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: "hi" });
  try {
    await run();
  } catch (error) {
    return { events, error: String(error.message) };
  }
  return { events, error: null };
}

const clients = { "ag-ui": agui, copilotkit, openai, a2a };
for (const scenario of await json(process.stdin)) {
  const result = await clients[scenario.client](scenario);
  process.stdout.write(`${JSON.stringify({ name: scenario.name, ...result })}\n`);
}
process.exit(0);
