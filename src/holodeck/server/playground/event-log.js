// @ts-check
// Every event that the page received, for the inspector: when, which, how large, the JSON itself, which request brought it.

const MAX = 20_000;

export class EventLog {
  entries = [];
  dropped = 0;
  #requests = new Map();
  #listener = () => {};

  listen(listener) {
    this.#listener = listener;
  }

  /** Remembers how a run was asked for, so that it can be asked for again from a shell. */
  requested(runId, request) {
    this.#requests.set(runId, request);
  }

  requestOf(runId) {
    return this.#requests.get(runId) ?? { method: "GET", path: `/runs/${encodeURIComponent(runId)}/events`, headers: { Accept: "text/event-stream" } };
  }

  add(runId, event, { data, number }, at) {
    if (this.entries.length >= MAX) this.dropped += this.entries.splice(0, MAX / 4).length;
    this.entries.push({ runId, number, at, type: event.type, size: data.length, data, about: aboutOf(event) });
    this.#listener();
  }

  clear() {
    this.entries = [];
    this.dropped = 0;
    this.#listener();
  }
}

/** A few words that distinguish an event from the next of its kind. */
function aboutOf(event) {
  const shown = event.delta ?? event.toolCallName ?? event.stepName ?? event.name ?? event.message ?? event.code ?? event.outcome?.type ?? "";
  return (typeof shown === "string" ? shown : JSON.stringify(shown)).slice(0, 120);
}

/** Whether an entry matches the filter: its type or text has every word, and none that follows a `-`. */
export function matches(entry, words) {
  return words.every((word) => {
    const isWithout = word.startsWith("-") && word.length > 1;
    const sought = isWithout ? word.slice(1) : word;
    const isThere = entry.type.toLowerCase().includes(sought) || entry.data.toLowerCase().includes(sought);
    return isThere !== isWithout;
  });
}
