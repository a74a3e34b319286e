// @ts-check
// The page's own form of messages, made from both of the server's: AG-UI's (snapshots) and that of GET /sessions.
//
// {id, role: user | assistant | tool, text, files, parts, images, calls, reasoning, cut, usage, callId, failed}

export function fromAgui(message) {
  const content = readContent(message.content);
  const calls = (message.toolCalls ?? []).map((call) => ({ id: call.id, name: call.function.name, arguments: call.function.arguments }));
  return { id: message.id, role: message.role, ...content, calls, callId: message.toolCallId, failed: message.error !== undefined };
}

export function fromSession(message) {
  return {
    id: message.id, role: message.role, ...readContent(message.content),
    calls: message.tool_calls ?? [], reasoning: message.reasoning ?? "", cut: message.cut ?? null,
    usage: message.tokens_used ?? null, callId: message.call_id, failed: message.failed ?? false,
  };
}

/** The first text is the user's; further texts are files as the model received them. */
export function readContent(content) {
  if (!Array.isArray(content)) return { text: content ?? "", files: [], parts: [], images: [] };
  const textPart = content.find((part) => part.type === "text");
  const rest = content.filter((part) => part !== textPart);
  const files = rest.map((part) => (part.type === "text" ? readText(part.text) : readMedia(part)));
  return { text: textPart?.text ?? "", files, parts: rest.map(partOf), images: files.filter((each) => each.data) };
}

/** A part as AG-UI has it; GET /sessions has media of its own shape. */
function partOf(part) {
  if (part.type !== "media") return part;
  const source = part.url ? { type: "url", value: part.url } : { type: "data", value: part.data };
  const kind = part.mime_type.startsWith("image/") ? "image" : "document";
  return { type: kind, source: { ...source, mimeType: part.mime_type }, ...(part.filename ? { metadata: { filename: part.filename } } : {}) };
}

function readMedia(part) {
  const source = part.source ?? {};
  const type = part.mime_type ?? source.mimeType ?? part.type;
  const data = part.data ?? (source.type === "data" ? source.value : null);
  const name = part.filename ?? part.metadata?.filename ?? type;
  const size = data === null ? null : Math.floor((data.length * 3) / 4);
  return { name, type, size, data: /^image\/(png|jpeg|gif|webp)$/.test(type) ? data : null };
}

function readText(text) {
  const [first] = text.split("\n", 1);
  return { name: first.slice(0, 80).replace(/:$/, ""), type: "text", size: null, text };
}

/** The conversation as AG-UI clients send it. Known media are only named: the server has them. */
export function toAgui(items) {
  const sent = [];
  const results = [];
  for (const item of items) {
    if (item.kind === "user") sent.push(userMessage(item));
    if (item.kind === "text") assistantOf(sent, item.id).content = item.text;
    if (item.kind === "call") {
      const call = { id: item.id, type: "function", function: { name: item.name, arguments: item.arguments } };
      (assistantOf(sent, item.messageId).toolCalls ??= []).push(call);
      if (item.resultId) results.push({ after: item.messageId, message: toolMessage(item) });
    }
  }
  for (const { after, message } of results) {
    let at = sent.findIndex((each) => each.id === after) + 1;
    while (sent[at]?.role === "tool") at += 1;
    sent.splice(at, 0, message);
  }
  return sent;
}

const toolMessage = (item) => ({ id: item.resultId, role: "tool", toolCallId: item.id, content: item.result ?? "", ...(item.failed ? { error: item.result } : {}) });

const userMessage = (item) => ({ id: item.id, role: "user", content: item.text });

function assistantOf(sent, id) {
  const known = sent.find((message) => message.id === id);
  if (known) return known;
  const made = { id, role: "assistant" };
  sent.push(made);
  return made;
}
