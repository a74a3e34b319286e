// @ts-check
// Messages between the tabs of this browser that show the same agent.

import { keptAs } from "./address.js";

export class Tabs {
  #channel = new BroadcastChannel(keptAs("holodeck"));

  constructor(onMessage) {
    this.#channel.addEventListener("message", ({ data }) => onMessage(data));
  }

  post(message) {
    this.#channel.postMessage(message);
  }
}
