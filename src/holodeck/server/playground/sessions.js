// The sessions that this browser knows: ids, titles, when they were used. What was said in them is the server's.

const KEY = "holodeck.sessions";
const MAX = 200;

export class Sessions {
  constructor(storage) {
    this.storage = storage;
  }

  /** Newest first: [{id, title, at, sending?}]. */
  list() {
    try {
      const kept = JSON.parse(this.storage.getItem(KEY) ?? "[]");
      return Array.isArray(kept) ? kept.filter((each) => typeof each?.id === "string").sort((a, b) => b.at - a.at) : [];
    } catch {
      return []; // not ours, or broken: begin anew
    }
  }

  get(id) {
    return this.list().find((each) => each.id === id);
  }

  /** Changes what is known of a session, which it may create. */
  update(id, fields) {
    const known = this.get(id) ?? { id, title: "", at: Date.now() };
    this.#keep([{ ...known, ...fields }, ...this.list().filter((each) => each.id !== id)]);
  }

  remove(id) {
    this.#keep(this.list().filter((each) => each.id !== id));
  }

  #keep(list) {
    this.storage.setItem(KEY, JSON.stringify(list.slice(0, MAX)));
  }
}

/** A title from the first thing that was said. */
export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length <= 48 ? line : `${line.slice(0, 47).trimEnd()}…`;
}
