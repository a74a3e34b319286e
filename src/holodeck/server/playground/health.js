// @ts-check
// How the server is: asked at the start, now and then, and after trouble. Says it in a sentence.

const EVERY = 20_000;
const SOON = 1_000;

export class Health {
  /** @type {any} */
  last = null; // the server's answer, or null while it does not answer
  /** @type {number | undefined} */
  #timer;

  constructor(server, onChange) {
    this.server = server;
    this.onChange = onChange;
  }

  async look() {
    clearTimeout(this.#timer);
    try {
      this.last = await this.server.health();
    } catch {
      this.last = null; // the server does not answer, and the page says so
    }
    this.onChange(this.last);
    clearTimeout(this.#timer); // another caller may have asked meanwhile
    this.#timer = setTimeout(() => this.look(), isWell(this.last) ? EVERY : SOON);
  }
}

export const isWell = (health) => ["healthy", "degraded"].includes(health?.status); // a degraded server answers

/** {tone, text, detail}, or null when all is well. */
export function troubleOf(health) {
  if (health === null) return { tone: "error", text: "The server does not answer.", detail: "This page tries again by itself; nothing is lost." };
  if (health.state === "initializing") return { tone: "info", text: "The agent is starting.", detail: "" };
  if (health.state === "shutting_down") return { tone: "warning", text: "The server is shutting down.", detail: "" };
  const down = (health.tool_servers ?? []).filter((each) => !each.ready);
  if (down.length === 0) return isWell(health) ? null : { tone: "error", text: "The agent cannot answer.", detail: "See the server's log for the reason." };
  const names = down.map((each) => each.name).join(", ");
  const needed = down.some((each) => each.required);
  const text = `Tool server${down.length > 1 ? "s" : ""} down: ${names}.`;
  const detail = [...down.map((each) => each.detail).filter(Boolean), needed ? "The agent needs it." : "The agent continues without its tools."].join(" ");
  return { tone: needed ? "error" : "warning", text, detail };
}
