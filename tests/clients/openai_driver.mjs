// OpenAI's SDK for JavaScript, raw and with its helpers: node openai_driver.mjs <scenarios on stdin >results on stdout
// A scenario is {name: one of the functions below, url}. All are played in one process; each result has what the SDK made of it.
import { json } from "node:stream/consumers";
import OpenAI from "openai";

const model = "scenes";
const user = (content) => [{ role: "user", content }];
const painted = [];
const paint = ({ colour }) => { painted.push(colour); return `painted ${colour}`; };
const parameters = { type: "object", properties: { colour: { type: "string" } }, required: ["colour"] };
const failed = (error) => ({
  class: error.constructor.name, status: error.status ?? null, code: error.code ?? null, param: error.param ?? null, message: error.message,
});

const scenes = {
  async "chat, plain"(client) {
    const { choices: [choice], usage } = await client.chat.completions.create({ model, messages: user("hello") });
    return { text: choice.message.content, reason: choice.finish_reason, tokens: usage.total_tokens };
  },
  async "chat, raw stream"(client) {
    const pieces = [];
    const stream = await client.chat.completions.create({ model, messages: user("hello"), stream: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) pieces.push(chunk.choices[0].delta.content);
    return { pieces };
  },
  async "chat, helper"(client) {
    const stream = client.chat.completions.stream({ model, messages: user("weather") });
    const pieces = [];
    stream.on("content", (delta) => pieces.push(delta));
    const { choices: [{ message, finish_reason }] } = await stream.finalChatCompletion();
    return { pieces, text: message.content, calls: message.tool_calls ?? [], reason: finish_reason };
  },
  async "chat, runTools"(client) {
    const change = { name: "change_background", description: "Paints", parameters, parse: JSON.parse, function: paint };
    const asked = { model, messages: user("paint it blue"), tools: [{ type: "function", function: change }] };
    const texts = [
      await client.chat.completions.runTools(asked).finalContent(),
      await client.chat.completions.runTools({ ...asked, stream: true }).finalContent(),
    ];
    return { texts, painted: painted.splice(0) };
  },
  async "chat, two turns"(client) {
    const { choices: [{ message }] } = await client.chat.completions.create({ model, messages: user("hello") });
    const messages = [...user("hello"), message, ...user("what did I say")];
    return { text: (await client.chat.completions.create({ model, messages })).choices[0].message.content };
  },
  async "chat, stopped"(client) {
    const stream = client.chat.completions.stream({ model, messages: user("stop me") });
    stream.on("content", () => stream.abort());
    return stream.finalChatCompletion().then(() => ({ class: null }), failed);
  },
  async "chat, errors"(client) {
    const ask = (given) => client.chat.completions.create({ model, messages: user("hello"), ...given }).then(() => ({ class: null }), failed);
    return { model: await ask({ model: "gpt-5" }), parameter: await ask({ n: 2 }), run: await ask({ messages: user("fail at once") }) };
  },
  async "responses, plain"(client) {
    const first = await client.responses.create({ model, input: "hello" });
    const second = await client.responses.create({ model, input: "what did I say", previous_response_id: first.id });
    return { texts: [first.output_text, second.output_text], tokens: first.usage.total_tokens };
  },
  async "responses, raw stream"(client) {
    const events = [];
    for await (const event of await client.responses.create({ model, input: "weather", stream: true })) events.push(event);
    return { types: events.map(({ type }) => type), numbers: events.map(({ sequence_number }) => sequence_number) };
  },
  async "responses, helper"(client) {
    const stream = client.responses.stream({ model, input: "weather" });
    const pieces = [];
    stream.on("response.output_text.delta", ({ delta }) => pieces.push(delta));
    const response = await stream.finalResponse();
    return { pieces, text: response.output_text, items: response.output.map(({ type }) => type) };
  },
  async "responses, own tool"(client) {
    const tools = [{ type: "function", name: "change_background", parameters, strict: false }];
    const first = await client.responses.create({ model, input: "paint it blue", tools });
    const output = first.output.map((call) => (
      { type: "function_call_output", call_id: call.call_id, output: paint(JSON.parse(call.arguments)) }
    ));
    const second = await client.responses.create({ model, input: output, previous_response_id: first.id, tools });
    return { text: second.output_text, painted: painted.splice(0) };
  },
  async "responses, approval"(client) {
    const first = await client.responses.create({ model, input: "delete it" });
    const [question] = first.output;
    const answer = { type: "mcp_approval_response", approval_request_id: question.id, approve: true };
    const second = await client.responses.create({ model, input: [answer], previous_response_id: first.id });
    return { asked: question.type, text: second.output_text, call: second.output[0] };
  },
  async "responses, background"(client) {
    const begun = await client.responses.create({ model, input: "stop me", background: true });
    const cancelled = await client.responses.cancel(begun.id);
    const done = await client.responses.create({ model, input: "hello", background: true });
    const events = [];
    for await (const event of await client.responses.retrieve(done.id, { stream: true, starting_after: 1 })) events.push(event);
    const { status, output_text } = await client.responses.retrieve(done.id);
    return { begun: begun.status, cancelled: cancelled.status, status, text: output_text, last: events.at(-1).type, first: events[0].sequence_number };
  },
  async "responses, errors"(client) {
    const ask = (given) => client.responses.create({ model, input: "hello", ...given }).then(() => ({ class: null }), failed);
    return {
      model: await ask({ model: "gpt-5" }),
      before: await ask({ previous_response_id: "resp_nothing" }),
      run: await ask({ input: "fail at once" }),
    };
  },
  async models(client) {
    const ids = [];
    for await (const { id } of client.models.list()) ids.push(id);
    return { ids };
  },
};

for (const { name, url } of await json(process.stdin)) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
  process.stdout.write(`${JSON.stringify({ name, ...(await scenes[name](client)) })}\n`);
}
process.exit(0);
