// The AI SDK on its own server, with the agent as a model of OpenAI's: node aisdk_provider_driver.mjs <scenarios on stdin >results on stdout
// A scenario is {name, url, api: "responses" | "chat", text}. The result has the parts of the stream, repetitions left out.
import { json } from "node:stream/consumers";
import { createOpenAI } from "@ai-sdk/openai";
import { jsonSchema, streamText, tool } from "ai";

const schema = { type: "object", properties: { colour: { type: "string" } }, required: ["colour"], additionalProperties: false };

function shown(part) {
  if (part.type === "error") return `error: ${part.error?.message}`;
  if (part.type === "tool-call") return `tool-call: ${part.toolName}${part.providerExecuted ? ", run by the server" : ""}`;
  return part.type === "finish" ? `finish: ${part.finishReason}` : part.type;
}

for (const { name, url, api, text } of await json(process.stdin)) {
  const model = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" })[api]("scenes");
  const tools = { change_background: tool({ inputSchema: jsonSchema(schema) }) };
  const parts = [];
  let answer = "";
  for await (const part of streamText({ model, prompt: text, tools, maxRetries: 0, onError() {} }).fullStream) {
    if (part.type === "text-delta") answer += part.text;
    if (parts.at(-1) !== shown(part)) parts.push(shown(part));
  }
  process.stdout.write(`${JSON.stringify({ name, parts, answer })}\n`);
}
process.exit(0);
