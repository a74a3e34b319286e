// @ts-check
// Server-sent events from a stream of text, cut anywhere. Knows frames, not their content.

export class SseReader {
  #rest = "";
  #searched = 0; // up to here there is no line end in #rest: a long line that comes in pieces is not searched again
  #id = "";
  #data = [];

  /** Takes the next piece of text, passes on every frame that is complete: {id, data}. */
  push(text, onFrame) {
    this.#rest += text;
    let start = 0;
    for (;;) {
      const end = this.#rest.indexOf("\n", Math.max(start, this.#searched));
      if (end < 0) break;
      this.#line(this.#rest.slice(start, this.#rest[end - 1] === "\r" && end > start ? end - 1 : end), onFrame);
      start = end + 1;
    }
    this.#rest = this.#rest.slice(start);
    this.#searched = this.#rest.length;
  }

  #line(line, onFrame) {
    if (line === "") return this.#dispatch(onFrame);
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.#data.push(value);
    if (field === "id") this.#id = value;
  }

  #dispatch(onFrame) {
    if (this.#data.length > 0) onFrame({ id: this.#id, data: this.#data.join("\n") });
    this.#data = [];
    this.#id = ""; // a frame without an id has none: what it begins is numbered by the frame that ends it
  }
}

/** The number in `<run>:<number>`, or null for a frame that has no number. */
export function numberOf(id, runId) {
  if (!id.startsWith(`${runId}:`)) return null;
  const number = Number(id.slice(runId.length + 1));
  return Number.isSafeInteger(number) && number >= 0 ? number : null;
}
