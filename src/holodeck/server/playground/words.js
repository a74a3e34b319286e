// @ts-check
// Sentences for the user about runs, calls, activities, the connection and the history. No DOM.

const OUTCOMES = {
  __proto__: null,
  success: "The answer is complete.",
  cancelled: "The answer was stopped.",
  cut: "The answer is not complete.",
  interrupt: "The agent asks for your approval.",
};

/** One short sentence for screen readers when something starts or ends; "" before anything has, null for no change. */
export function announcementOf({ run, questions, items }) {
  if (questions.length > 0) return OUTCOMES.interrupt;
  if (run) return run.started === null ? null : "The agent is answering."; // until then it is only sent
  const last = items.findLast((item) => item.kind === "turn" || item.kind === "notice");
  if (!last || last.id.startsWith("after:")) return ""; // nothing yet, or items of before the page was loaded
  if (last.kind === "notice") return last.text;
  return last.outcome === "error" ? `There is no answer: ${last.message}` : OUTCOMES[last.outcome] ?? "";
}

/** The message while no connection works: {tone, text, detail}. `refusal` is what the server answered, "" if it did not. */
export function lostConnection({ isAccepted, isServerGone, refusal = "" }) {
  if (refusal && !isAccepted) return { tone: "warning", text: "Your message is not accepted yet.", detail: `${refusal} This page sends the message again until the server accepts it.` };
  if (refusal) return { tone: "warning", text: "The rest of the answer cannot be read yet.", detail: `${refusal} This page keeps trying.` };
  if (!isAccepted) return { tone: "warning", text: "Your message is not accepted yet.", detail: "The server does not answer. This page sends the message again until it does." };
  if (isServerGone) return { tone: "warning", text: "The connection is lost and the server does not answer.", detail: "It is not known whether the run continues. This page keeps trying." };
  return { tone: "warning", text: "The connection is lost. Connecting again …", detail: "The server responds; the answer continues where it stopped." };
}

const REFUSALS = [
  ["The user refused this call.", "rejected"],
  ["Not carried out: the user continued without approving it.", "passed"],
  ["Not carried out: the user went on without approving it.", "passed"], // as older versions stored it
];

/** How a call ended: a refusal by the user is not a failure. The texts are those of `holodeck.agent.pending`. */
export function callOutcome(failed, result) {
  if (!failed) return "done";
  return REFUSALS.find(([text]) => (result ?? "").startsWith(text))?.[1] ?? "failed";
}

const ACTIVITIES = {
  __proto__: null,
  tool_server: ({ server, status }) => `Tool server ${server}: ${status}`,
  tool_progress: ({ tool, progress, total, message }) => [`${tool}: ${amount(progress, total)}`, message].filter(Boolean).join(", "),
  file: ({ name, status, pages }) => [`Reading ${name}`, status, pages ? `${pages} pages` : ""].filter(Boolean).join(", "),
};

/** {text, fraction, rest}: a sentence, how far it is from 0 to 1 if that is known, and what the sentence leaves out. */
export function activityWords(kind, content) {
  const isKnown = content !== null && typeof content === "object" && ACTIVITIES[kind] !== undefined;
  if (isKnown) return { text: ACTIVITIES[kind](content), fraction: fractionOf(content), rest: null };
  const plain = content !== null && typeof content === "object" && !Array.isArray(content) ? Object.entries(content).filter(([, value]) => value !== null && typeof value !== "object") : [];
  const isWhole = plain.length > 0 && plain.length === Object.keys(content).length;
  const named = plain.map(([key, value]) => `${spaced(key)}: ${value}`).join(", ");
  return { text: [spaced(kind ?? "activity"), named].filter(Boolean).join(" · "), fraction: null, rest: isWhole ? null : content };
}

const spaced = (name) => String(name).replaceAll("_", " ");

const fractionOf = ({ progress, total }) => (Number.isFinite(progress) && total > 0 ? Math.min(1, Math.max(0, progress / total)) : null);

function amount(progress, total) {
  if (!Number.isFinite(progress)) return "running";
  return total > 0 ? `${Math.round((100 * progress) / total)} %` : String(progress);
}

/** How the server used the history that the page sent, from the event `holodeck.history`; "" if the user rewound it. */
export function historyWords({ adopted = 0, left_out: leftOut = 0, messages = 0, summarized = false }) {
  if (messages > 0) return summarized ? `The agent now works with a summary of the first ${messages} messages.` : `The agent no longer sees the first ${messages} messages.`;
  const lost = "The server does not know this session: it was deleted or has expired.";
  if (adopted > 0) {
    const left = leftOut > 0 ? " Its tool calls and results were left out, since the server cannot verify them." : "";
    return `${lost} The agent continues from ${adopted} ${adopted === 1 ? "message" : "messages"} that this page had.${left}`;
  }
  return leftOut > 0 ? `${lost} The agent does not see the messages above.` : "";
}
