// @ts-check
// Frontend tools: what this page offers to the agent. A demonstration of AG-UI's client tools, off by default.

const CHANGE_BACKGROUND = {
  name: "change_background",
  description: "Changes the background colour of the page that the user is looking at.",
  parameters: {
    type: "object",
    properties: { colour: { type: "string", description: "A CSS colour, such as lightblue or #ffe4b5; `none` for the usual one" } },
    required: ["colour"],
  },
};

export class PageTools {
  isOffered = false;

  /** `paint(colour)` shows a colour, null for none; it returns whether it could. */
  constructor(paint, zone = Intl.DateTimeFormat().resolvedOptions().timeZone) {
    this.paint = paint;
    this.zone = zone;
  }

  /** The tools that are sent with every run. */
  offer() {
    return { tools: this.isOffered ? [CHANGE_BACKGROUND] : [], context: [], forwardedProps: { timezone: this.zone } };
  }

  run(name, text) {
    if (name !== CHANGE_BACKGROUND.name) return failure(`This page has no tool ${name}.`);
    let given;
    try {
      given = JSON.parse(text || "{}");
    } catch {
      return failure("The arguments are not JSON.");
    }
    const colour = given?.colour;
    if (typeof colour !== "string") return failure("colour is missing.");
    const wanted = colour === "none" ? null : colour;
    return this.paint(wanted) ? { text: `The background is now ${colour}.`, failed: false } : failure(`${colour} is not a colour.`);
  }
}

const failure = (text) => ({ text, failed: true });
