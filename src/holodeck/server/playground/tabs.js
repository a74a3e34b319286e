// @ts-check
// Messages between the tabs of this browser that show the same agent.

import { keptAs } from "./address.js";

export class Tabs {
  #channel = new BroadcastChannel(keptAs("holodeck"));

  constructor(hear) {
    this.#channel.addEventListener("message", ({ data }) => hear(data));
  }

  post(message) {
    this.#channel.postMessage(message);
  }
}
