// @ts-check
// The list of sessions: those that this browser knows, with titles, and the server's other ones.

import { keptAs } from "./address.js";

const KEY = keptAs("holodeck.sessions");
const MAX = 200;

export class Sessions {
  #remote = [];

  constructor(storage) {
    this.storage = storage;
  }

  /** Newest first: [{id, title, at, sending?}]. */
  list() {
    try {
      const kept = JSON.parse(this.storage.getItem(KEY) ?? "[]");
      return Array.isArray(kept) ? kept.filter((each) => typeof each?.id === "string").sort((a, b) => b.at - a.at) : [];
    } catch {
      return []; // not ours, or broken: start with an empty list
    }
  }

  /** What the server has, from GET /sessions. A title that was given in this browser comes first. */
  learn(entries) {
    this.#remote = entries.map((each) => ({ id: each.session_id, title: titleOf(each.title ?? ""), at: Date.parse(each.last_activity), count: each.message_count }));
  }

  /** Newest first, the server's included. */
  all() {
    const known = this.list();
    const ids = new Set(known.map((each) => each.id));
    return [...known, ...this.#remote.filter((each) => !ids.has(each.id))].sort((a, b) => b.at - a.at);
  }

  get(id) {
    return this.list().find((each) => each.id === id);
  }

  /** Updates the entry of a session, or creates it. */
  update(id, fields) {
    const known = this.get(id) ?? { id, title: "", at: Date.now() };
    this.#keep([{ ...known, ...fields }, ...this.list().filter((each) => each.id !== id)]);
  }

  remove(id) {
    this.#remote = this.#remote.filter((each) => each.id !== id);
    this.#keep(this.list().filter((each) => each.id !== id));
  }

  #keep(list) {
    this.storage.setItem(KEY, JSON.stringify(list.slice(0, MAX)));
  }
}

/** The name of a session in the list: its title, or its time if it has none. */
export function nameOf({ title, at, count }) {
  if (title) return title;
  return count ? `${new Date(at).toLocaleString("en", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false })} · ${count} messages` : "New session";
}

/** A title from the first message. */
export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length <= 48 ? line : `${line.slice(0, 47).trimEnd()}…`;
}
