// MCP clients in JavaScript: the newer package, or with "legacy" the one that most programs still carry.
// Reads [{name, arguments}] from stdin, prints one line of JSON for each call of the tool `ask`.
import { readFileSync } from "node:fs";

const [url, era] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } =
  era === "legacy"
    ? {
        ...(await import("mcp-legacy/client/index.js")),
        ...(await import("mcp-legacy/client/streamableHttp.js")),
      }
    : await import("@modelcontextprotocol/client");

const client = new Client({ name: "driver", version: "1" }, { capabilities: {} });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
for (const scenario of JSON.parse(readFileSync(0, "utf8"))) {
  const progress = [];
  const onprogress = (each) => progress.push(each.message);
  const call = { name: "ask", arguments: scenario.arguments };
  const result = await (era === "legacy"
    ? client.callTool(call, undefined, { onprogress })
    : client.callTool(call, { onprogress })
  ).catch((error) => ({ error: error.message, code: error.code }));
  console.log(JSON.stringify({ name: scenario.name, tools: tools.map((tool) => tool.name), progress, result }));
}
await client.close();
