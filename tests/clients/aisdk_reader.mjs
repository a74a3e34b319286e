// Reads streams with the AI SDK's own parser: node aisdk_reader.mjs <package> <scenarios on stdin >results on stdout
// A scenario is {name, body}, a whole SSE body; the result is the last state of the message, and the errors.
import { json } from "node:stream/consumers";

const [library = "ai"] = process.argv.slice(2);
const ai = await import(library);

class Transport extends ai.DefaultChatTransport {
  chunks = (body) => this.processResponseStream(new Blob([body]).stream());
}

for (const { name, body } of await json(process.stdin)) {
  const errors = [];
  let message = null;
  const options = { stream: new Transport().chunks(body), onError: (error) => errors.push(String(error.message ?? error)) };
  for await (const state of ai.readUIMessageStream(options)) message = state;
  process.stdout.write(`${JSON.stringify({ name, message, errors })}\n`);
}
