// @ts-check
// The server's side of the page: AG-UI and the few routes around it. Knows HTTP, but not what events mean.

import { ADDRESS } from "./address.js";
import { numberOf, SseReader } from "./sse.js";

const JSON_TYPE = { "Content-Type": "application/json" };
const STREAM = { Accept: "text/event-stream" };
const TRY_AGAIN = new Set([429, 502, 503, 504]);
const DELAYS = [300, 600, 1200, 2500, 5000];

/** An error response of the server: a problem (RFC 9457). */
export class Problem extends Error {
  constructor(status, problem = {}) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.code = (problem.type ?? "").split("/").at(-1);
    this.reason = problem.reason;
    this.retryAfter = problem.retry_after ?? null;
  }

  /** Whether the same request may succeed in a moment: the server is starting, stopping or overloaded. */
  get isPassing() {
    return TRY_AGAIN.has(this.status) && !["model-error", "model-unavailable", "timeout"].includes(this.code);
  }
}

export class Server {
  /** `refused` is called when the server requires a credential. */
  constructor(identity, refused = () => {}) {
    this.identity = identity;
    this.refused = refused;
  }

  /**
   * The only function that sends requests, so that the credential is in one header and nowhere else.
   * @param {string} path
   * @param {RequestInit} options
   */
  async #ask(path, { headers = {}, ...options } = {}) {
    const answer = await fetch(ADDRESS + path, { ...options, headers: { ...headers, ...this.identity.headers } });
    if (answer.status === 401) this.refused();
    return answer;
  }

  /** The user of the credential. */
  async me() {
    return (await checked(await fetch(`${ADDRESS}/me`, { headers: this.identity.headers }))).json();
  }

  /** Exchanges the code in the address that `serve --open` opened for a token. */
  async exchange(code) {
    const body = JSON.stringify({ code });
    return (await (await checked(await fetch(`${ADDRESS}/playground/session`, { method: "POST", headers: JSON_TYPE, body }))).json()).token;
  }

  async post(input, signal) {
    return checked(await this.#ask("/awp", { method: "POST", headers: { ...JSON_TYPE, ...STREAM }, body: JSON.stringify(input), signal }));
  }

  /** Continues a run that was cut. Without an Idempotency-Key, so that two tabs that ask get the same continuation. */
  async goOn(runId, signal) {
    return checked(await this.#ask(`/runs/${encodeURIComponent(runId)}/continue`, { method: "POST", headers: { ...JSON_TYPE, ...STREAM }, signal }));
  }

  async events(runId, last, signal) {
    const headers = last < 0 ? STREAM : { ...STREAM, "Last-Event-ID": `${runId}:${last}` };
    return checked(await this.#ask(`/runs/${encodeURIComponent(runId)}/events`, { headers, signal }));
  }

  async stop(runId) {
    return checked(await this.#ask(`/runs/${encodeURIComponent(runId)}/stop`, { method: "POST", headers: JSON_TYPE }));
  }

  /** The stored session, or null if the server has none. */
  async session(id) {
    const answer = await this.#ask(`/sessions/${encodeURIComponent(id)}`);
    return answer.status === 404 ? null : (await checked(answer)).json();
  }

  /** Deletes the session, or its messages from one on. */
  async forget(id, from = null) {
    const query = from === null ? "" : `?from=${encodeURIComponent(from)}`;
    return checked(await this.#ask(`/sessions/${encodeURIComponent(id)}${query}`, { method: "DELETE" }));
  }

  /** The health of the server, which has a body also with status 503. Without the scope it is the status only. */
  async health() {
    const answer = await fetch(`${ADDRESS}/health/agent`, { headers: this.identity.headers });
    return (answer.status === 401 || answer.status === 403 ? await fetch(`${ADDRESS}/health`) : answer).json();
  }

  /** The user's sessions, most recently used first: [{session_id, last_activity, message_count, active_runs}]. */
  async sessions() {
    return (await (await checked(await this.#ask("/sessions?limit=200"))).json()).sessions;
  }

  /** A command for each protocol that is served: [{protocol, title, curl}], with the server's address in it. */
  async commands() {
    const about = await (await checked(await this.#ask("/", { headers: { Accept: "application/json" } }))).json();
    const key = this.identity.isSignedIn ? 'curl -H "Authorization: Bearer $HOLODECK_KEY"' : "curl";
    return (about.try ?? []).map((each) => ({ ...each, curl: each.curl.replace("{base}", ADDRESS).replace(/^curl/, key) }));
  }

  async capabilities() {
    return (await checked(await this.#ask("/awp/capabilities"))).json();
  }
}

async function checked(answer) {
  if (answer.ok) return answer;
  const isJson = (answer.headers.get("content-type") ?? "").includes("json");
  throw new Problem(answer.status, isJson ? await answer.json() : {});
}

/** Passes on every frame of a streaming answer: {id, data}. */
export async function readFrames(answer, onFrame) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  const frames = new SseReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    frames.push(decoder.decode(value, { stream: true }), onFrame);
  }
}

/** A bug in the listener must not look like a lost connection: it is reported, and the run continues. */
function notify(onEvent, event, frame) {
  try {
    onEvent(event, frame);
  } catch (error) {
    reportError(error);
  }
}

const isEnding = (type) => type === "RUN_FINISHED" || type === "RUN_ERROR";

/**
 * Follows a run to its end, through lost connections. With `input` it is started first: posting a run again joins it,
 * so a post whose answer was lost is simply repeated. Every event is passed on once, in order: received events are counted,
 * and reading resumes after the last one. With `isCut` the continuation of the run is followed. The server makes its id,
 * which its first event has; until then the request is repeated, which joins as well. Throws a Problem that waiting does not solve.
 */
export async function followRun({ server, runId, input = null, isCut = false, signal, onEvent, lost, pause = wait }) {
  let last = -1;
  let followed = isCut ? null : runId;
  let isStarted = input === null && !isCut;
  const start = () => (isCut ? server.goOn(runId, signal) : server.post(input, signal));
  for (let attempt = 0; ; ) {
    let failure = null;
    try {
      const answer = isStarted && followed !== null ? await server.events(followed, last, signal) : await start();
      isStarted = true;
      if (answer.status === 204) return;
      let ended = false;
      await readFrames(answer, ({ id, data }) => {
        followed ??= JSON.parse(data).runId ?? null;
        const number = numberOf(id, followed);
        if (number !== null && number <= last) return;
        attempt = 0;
        last = number ?? last;
        const event = JSON.parse(data);
        ended ||= isEnding(event.type);
        notify(onEvent, event, { data, number, runId: followed });
      });
      if (ended) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && !error.isPassing) throw error;
      failure = error;
    }
    const delay = failure?.retryAfter ? failure.retryAfter * 1000 : DELAYS[Math.min(attempt, DELAYS.length - 1)];
    attempt += 1;
    lost({ attempt, delay, failure });
    await pause(delay, signal);
    if (signal.aborted) return;
  }
}

/** Waits; ends early when the network is back. */
function wait(milliseconds, signal) {
  return new Promise((/** @type {(value?: unknown) => void} */ resolve) => {
    const over = new AbortController();
    const end = () => {
      over.abort();
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end, { signal: over.signal });
    signal.addEventListener("abort", end, { signal: over.signal });
  });
}
