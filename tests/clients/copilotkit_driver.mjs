// Plays scenarios with CopilotKit's headless core client: node copilotkit_driver.mjs <scenarios on stdin >results on stdout
// A scenario is {name, url, transport: "rest" | "single" | "auto", agent, thread, steps: [...]}; a step is
//   {do: "run", say, tools?: answers of the page's own tools by name} · {do: "connect"}: a new page that knows only the thread
//   {do: "mount twice", say}: the chat view is mounted, and again while the agent answers; then the user presses stop
//   {do: "run and stop", say}: the user presses stop at the first words
//   {do: "join", say}: a second page connects while the first one's run goes on, and then stops it
import { json } from "node:stream/consumers";
import { CopilotKitCore } from "@copilotkit/core";
import { z } from "zod";

globalThis.window = globalThis; // the core looks for a runtime only where there is a window

let warnings = [];
console.warn = (...said) => warnings.push(said.map(String).join(" "));
console.error = (...said) => warnings.push(said.map(String).join(" "));

// A page: the core, connected to the runtime, and the agent that it found there.
async function open({ url, transport, agent: agentId, thread }) {
  const core = new CopilotKitCore({ runtimeUrl: url, runtimeTransport: transport });
  const errors = [];
  const connected = new Promise((resolve) => {
    core.subscribe({
      onRuntimeConnectionStatusChanged: ({ status }) => { if (status === "connected" || status === "error") resolve(status); },
      onError: ({ error, code }) => { errors.push(`${code}: ${error.message}`); },
    });
  });
  const status = core.runtimeConnectionStatus === "connected" ? "connected" : await connected;
  const agent = core.getAgent(agentId);
  agent.threadId = thread;
  return { core, agent, errors, status };
}

function listen(agent, on = () => {}) {
  const events = [];
  const { unsubscribe } = agent.subscribe({ onEvent: ({ event }) => { events.push(structuredClone(event)); on(event); } });
  return { events, unsubscribe };
}

const first = (type, act) => {
  let acted = false;
  return (event) => { if (event.type === type && !acted) { acted = true; act(); } };
};

const say = (agent, content) => agent.addMessage({ id: `${agent.threadId}-${agent.messages.length}`, role: "user", content });

// Starts a run and waits for its first words.
async function begin(page, words) {
  say(page.agent, words);
  let begun;
  const begins = new Promise((resolve) => { begun = resolve; });
  const heard = listen(page.agent, first("TEXT_MESSAGE_CONTENT", () => begun()));
  const running = page.core.runAgent({ agent: page.agent });
  await begins;
  return { heard, running };
}

const stopAtFirstWords = (page) => listen(page.agent, first("TEXT_MESSAGE_CONTENT", () => page.core.stopAgent({ agent: page.agent })));

const steps = {
  async run(page, step) {
    for (const [name, answer] of Object.entries(step.tools ?? {})) {
      page.core.addTool({
        name,
        description: "A tool of the page",
        parameters: z.object({ colour: z.string() }),
        handler: async ({ colour }) => `${answer} ${colour}`,
      });
    }
    say(page.agent, step.say);
    await page.core.runAgent({ agent: page.agent });
    return page;
  },
  async connect(_, __, scenario) {
    const page = await open(scenario);
    page.heard = listen(page.agent);
    await page.core.connectAgent({ agent: page.agent });
    return page;
  },
  async "mount twice"(page, step) {
    await page.core.connectAgent({ agent: page.agent });
    const { heard, running } = await begin(page, step.say);
    heard.unsubscribe();
    const stopping = stopAtFirstWords(page);
    await page.core.connectAgent({ agent: page.agent });
    stopping.unsubscribe();
    await running;
    return page;
  },
  async "run and stop"(page, step) {
    say(page.agent, step.say);
    const stopping = stopAtFirstWords(page);
    await page.core.runAgent({ agent: page.agent });
    stopping.unsubscribe();
    return page;
  },
  async join(page, step, scenario) {
    const { heard, running } = await begin(page, step.say);
    const other = await open(scenario);
    other.heard = stopAtFirstWords(other);
    await other.core.connectAgent({ agent: other.agent });
    await running;
    other.joined = { events: heard.events, messages: structuredClone(page.agent.messages) };
    heard.unsubscribe();
    return other;
  },
};

async function play(scenario) {
  warnings = [];
  let page = await open(scenario);
  const results = [];
  for (const step of scenario.steps) {
    page.heard = listen(page.agent);
    page = await steps[step.do](page, step, scenario);
    page.heard.unsubscribe();
    const { agent, status, errors, joined } = page;
    results.push(structuredClone({
      status, errors, joined, events: page.heard.events, messages: agent.messages, state: agent.state,
      agents: Object.keys(page.core.agents), capabilities: agent.capabilities,
    }));
  }
  return { name: scenario.name, warnings, steps: results };
}

for (const scenario of await json(process.stdin)) {
  process.stdout.write(JSON.stringify(await play(scenario)) + "\n");
}
process.exit(0); // the core keeps timers
