// @ts-check
// A session as a Markdown document, as the terminal chat exports it.

/** `session` as GET /sessions/{id} has it. */
export function markdownOf(title, session) {
  const parts = [`# ${title || "Conversation"}`, `Session \`${session.session_id}\``];
  for (const message of session.messages) parts.push(...OF_ROLE[message.role]?.(message) ?? []);
  for (const question of session.pending?.questions ?? []) parts.push(`> Waits for approval: ${code(question.tool)} ${code(question.arguments)}`);
  return `${parts.join("\n\n")}\n`;
}

const OF_ROLE = {
  __proto__: null,
  user: (message) => ["## You", textOf(message.content)],
  assistant: (message) => [
    "## Agent", ...(message.content ? [message.content] : []), ...(message.cut ? ["*This answer is not complete.*"] : []),
    ...(message.tool_calls ?? []).map((call) => `> Tool ${code(call.name)} ${code(call.arguments)}`),
  ],
  tool: (message) => [`> ${message.failed ? "Failed" : "Result"} of ${code(message.name)}:`, fenced(textOf(message.content))],
};

const textOf = (content) => (typeof content === "string" ? content : content.map((part) => part.text ?? `[${part.mime_type}${part.filename ? `: ${part.filename}` : ""}]`).join("\n\n"));

/** Code in a line. A text with backticks gets longer ones around it. */
function code(text) {
  const line = String(text).replace(/\s+/g, " ");
  const ticks = "`".repeat(longest(line) + 1);
  return longest(line) > 0 ? `${ticks} ${line} ${ticks}` : `${ticks}${line}${ticks}`;
}

function fenced(text) {
  const ticks = "`".repeat(Math.max(3, longest(text) + 1));
  return `${ticks}\n${text}\n${ticks}`;
}

const longest = (text) => Math.max(0, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
