// Plays scenarios with the chat of the AI SDK, without React: node aisdk_driver.mjs <package> <scenarios on stdin >results on stdout
// The package is "ai" or an older version under another name. One JSON line per scenario, in their order.
// A scenario is {name, url, id?, tools?: {name: output}, body?, steps: [...]}; a step is one of
//   {send, edit?: number of the message, files?} · {regenerate: true} · {approve: true | false, reason?} · {resume: true} · {load: true}
// with {answers?: how many answers to wait for, cut?: text, stop?: text}
//   cut: the connection breaks when this text was received · stop: the chat is stopped on the server when it was shown
import { json } from "node:stream/consumers";

const [library = "ai"] = process.argv.slice(2);
const ai = await import(library);

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, structuredClone(message)); };
  snapshot = (thing) => structuredClone(thing);
}

class Chat extends ai.AbstractChat {
  constructor({ url, id, body, tools = {} }) {
    const state = new State();
    const seen = { data: [], finishes: [], chunks: [] };
    super({
      id, state,
      transport: new ai.DefaultChatTransport({ api: `${url}/ai-sdk/chat`, body, fetch: (...given) => this.fetch(...given) }),
      onData: (part) => seen.data.push(structuredClone(part)),
      onFinish: ({ finishReason, isAbort, isDisconnect, isError }) => {
        seen.finishes.push({ finishReason, isAbort, isDisconnect, isError });
        this.finished?.();
      },
      onToolCall: ({ toolCall }) => {
        this.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: tools[toolCall.toolName] });
      },
      sendAutomaticallyWhen: (given) =>
        ai.lastAssistantMessageIsCompleteWithToolCalls(given) || ai.lastAssistantMessageIsCompleteWithApprovalResponses(given),
    });
    Object.assign(this, { url, shown: state, seen, http: [] });
  }

  async fetch(url, init) {
    const response = await fetch(url, init);
    this.http.push({ method: init.method, status: response.status, stream: response.headers.get("x-vercel-ai-ui-message-stream") });
    return this.cut && response.body ? new Response(response.body.pipeThrough(this.cutAt(this.cut)), response) : response;
  }

  cutAt(text) {
    const decoder = new TextDecoder();
    this.cut = null;
    return new TransformStream({
      transform(bytes, controller) {
        controller.enqueue(bytes);
        if (decoder.decode(bytes, { stream: true }).includes(text)) controller.error(new TypeError("network error"));
      },
    });
  }

  async until(condition) {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

async function play(chat, step) {
  Object.assign(chat.seen, { data: [], finishes: [] });
  chat.http.length = 0;
  chat.cut = step.cut;
  const wanted = step.answers ?? 1;
  let asked;
  if (step.send !== undefined) asked = chat.sendMessage({ text: step.send, files: step.files, messageId: chat.messages[step.edit]?.id });
  else if (step.regenerate) asked = chat.regenerate();
  else if (step.resume) asked = chat.resumeStream();
  else if (step.load) asked = load(chat);
  else if (step.approve !== undefined) asked = approve(chat, step);
  if (step.stop) {
    await chat.until(() => JSON.stringify(chat.lastMessage?.parts ?? []).includes(step.stop));
    await fetch(`${chat.url}/ai-sdk/chat/${encodeURIComponent(chat.id)}/stop`, { method: "POST" });
  }
  await asked;
  if (!step.load && chat.http.every(({ status }) => status === 200)) {
    await chat.until(() => chat.seen.finishes.length >= wanted && (chat.status === "ready" || chat.status === "error"));
  }
  return {
    messages: structuredClone(chat.messages), status: chat.status, error: chat.error?.message ?? null,
    ...structuredClone(chat.seen), http: structuredClone(chat.http),
  };
}

async function approve(chat, { approve: approved, reason }) {
  const waiting = chat.lastMessage.parts.filter((part) => part.state === "approval-requested");
  for (const part of waiting) await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason });
}

// What a page does when it is loaded: the messages of the server, checked by the library.
async function load(chat) {
  const answer = await fetch(`${chat.url}/ai-sdk/chat/${encodeURIComponent(chat.id)}/messages`);
  chat.messages = await ai.validateUIMessages({ messages: await answer.json() });
}

for (const scenario of await json(process.stdin)) {
  const chat = new Chat(scenario);
  const steps = [];
  for (const step of scenario.steps) steps.push(await play(chat, step));
  process.stdout.write(`${JSON.stringify({ name: scenario.name, steps })}\n`);
}
process.exit(0);
