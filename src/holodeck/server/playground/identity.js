// @ts-check
// Who uses the page: a key or token that is kept in memory only, or in this tab if its user wants that, and what it allows.

import { keptAs } from "./address.js";

const KEPT = keptAs("holodeck.credential"); // in sessionStorage: it ends with the tab, and no other tab sees it

export class Identity {
  /** @type {string | null} */
  #credential = null;
  /** @type {import("./types.d.ts").Principal | null} */
  principal = null; // the server's answer to GET /me, or null before sign-in

  constructor(storage = globalThis.sessionStorage ?? null) {
    this.storage = storage;
    this.#credential = storage?.getItem(KEPT) ?? null;
  }

  get isSignedIn() {
    return this.#credential !== null;
  }

  /** For every request of the page. */
  get headers() {
    return this.#credential === null ? {} : { Authorization: `Bearer ${this.#credential}` };
  }

  use(credential, isKept) {
    this.#credential = credential;
    if (isKept) this.storage?.setItem(KEPT, credential);
    else this.storage?.removeItem(KEPT);
  }

  forget() {
    this.#credential = this.principal = null;
    this.storage?.removeItem(KEPT);
  }

  /** Before the server has answered, nothing is greyed out. */
  may(scope) {
    return this.principal === null || this.principal.scopes.includes(scope);
  }
}

/** The page's own; modules that draw ask it what is allowed. */
export const identity = new Identity();
