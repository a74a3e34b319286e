// Stock clients whose connections break: node cut_driver.mjs <[{name: client, url, run, thread}] >results on stdout
// Each asks "slow" once and comes back as an application with that client does, until the run has ended. The result has the text of
// the last answer, how often the client came back, and which answers it showed when each connection ended.
import { json } from "node:stream/consumers";
import { HttpAgent } from "@ag-ui/client";
import { CopilotKitCore } from "@copilotkit/core";
import { EventSource } from "eventsource";

globalThis.window = globalThis; // CopilotKit looks for a runtime only where there is a window
console.warn = console.error = () => {};
const wait = globalThis.setTimeout;
globalThis.setTimeout = (act, milliseconds, ...given) => wait(act, Math.min(milliseconds ?? 0, 50), ...given); // EventSource waits 3 s

process.on("uncaughtException", () => {}); // a page goes on when the promise of a broken connection has no handler

setInterval(() => {}, 1000); // EventSource does not keep the process while it waits

const message = ({ run }) => ({ id: `m-${run}`, role: "user", content: "slow" });
const last = ({ messages }) => messages.at(-1).content;
const shown = ({ messages }) => messages.filter(({ role }) => role === "assistant").map(({ content }) => content);

const clients = {
  // Goes back to the messages of before and posts the same run again: the server joins the client to the run.
  async "@ag-ui/client"({ url, run, thread }) {
    const before = [message({ run })];
    const agent = new HttpAgent({ url: `${url}/awp`, threadId: thread });
    const answers = [];
    for (let times = 0; ; times++) {
      agent.setMessages(before);
      try {
        await agent.runAgent({ runId: run });
        return { text: last(agent), messages: agent.messages.length, times, answers };
      } catch (error) {
        if (error.status) throw error; // refused, not cut
        answers.push(shown(agent));
      }
    }
  },

  // A page connects to its thread: at first the one that is open, then one that is loaded again.
  async "@copilotkit/core"({ url, run, thread }) {
    async function open() {
      const core = new CopilotKitCore({ runtimeUrl: `${url}/copilotkit` });
      await new Promise((resolve) => {
        core.subscribe({ onRuntimeConnectionStatusChanged: ({ status }) => { if (status === "connected") resolve(); } });
      });
      const agent = core.getAgent("default");
      agent.threadId = thread;
      return { core, agent };
    }
    let { core, agent } = await open();
    let ended = false;
    const watch = () => agent.subscribe({ onRunFinishedEvent: () => { ended = true; } });
    watch();
    agent.addMessage(message({ run }));
    await core.runAgent({ agent }).catch(() => {});
    const answers = [];
    for (let times = 0; ; times++) {
      if (ended) return { text: last(agent), messages: agent.messages.length, times, answers };
      answers.push(shown(agent));
      if (times > 0) {
        ({ core, agent } = await open());
        watch();
      }
      await core.connectAgent({ agent }).catch(() => {});
    }
  },

  // Resumes by itself, with Last-Event-ID.
  async eventsource({ url, run, thread }) {
    const body = JSON.stringify({ threadId: thread, runId: run, protocolVersion: "1.0", messages: [message({ run })] });
    const asked = await fetch(`${url}/awp`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    await asked.body.cancel();
    return new Promise((resolve) => {
      const ids = [], answers = [];
      let text = "", times = 0;
      const source = new EventSource(`${url}/runs/${run}/events`);
      source.onerror = () => { times++; answers.push([text]); };
      source.onmessage = ({ data, lastEventId }) => {
        const event = JSON.parse(data);
        ids.push(lastEventId);
        if (event.type === "TEXT_MESSAGE_CONTENT") text += event.delta;
        if (event.type !== "RUN_FINISHED") return;
        source.close();
        resolve({ text, messages: 2, times, answers, ids });
      };
    });
  },
};

for (const scenario of await json(process.stdin)) {
  process.stdout.write(`${JSON.stringify({ name: scenario.name, ...(await clients[scenario.name](scenario)) })}\n`);
}
process.exit(0);
