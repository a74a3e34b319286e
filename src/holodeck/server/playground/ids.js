// @ts-check
// Ids of sessions, runs and messages. Not crypto.randomUUID: a page on a plain http address of the network lacks it.

export function newId(kind) {
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  return `${kind}-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
