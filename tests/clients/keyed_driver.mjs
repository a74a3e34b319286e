// Plays scenarios with clients that send a key: node keyed_driver.mjs <scenarios on stdin >results on stdout
// A scenario is {name, client: "ag-ui" | "copilotkit", url, headers}; the result has the types of the events, or the error.
import { json } from "node:stream/consumers";
import { HttpAgent } from "@ag-ui/client";
import { CopilotKitCore } from "@copilotkit/core";

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

const clients = { "ag-ui": agui, copilotkit };
for (const scenario of await json(process.stdin)) {
  const result = await clients[scenario.client](scenario);
  process.stdout.write(`${JSON.stringify({ name: scenario.name, ...result })}\n`);
}
process.exit(0);
