// @ts-check
// What a developer can do about a failure, in a sentence. Codes and reasons are those of the server's errors.

const BY_REASON = {
  __proto__: null,
  upstream_auth: "The model endpoint refused the API key, or there is none. Set the key that the agent file names in your environment or in .env, then restart the server.",
  upstream_unavailable: "The model endpoint cannot be reached. Check its address in the agent file (model.endpoint) and that it is running.",
  upstream_overloaded: "The model endpoint is overloaded or has reached its rate limit. Try again in a moment.",
  context_overflow: "The conversation is longer than the model can read. Begin a new session.",
  upstream_timeout: "The model took longer than the agent file allows (model.timeout).",
  upstream_stalled: "The model stopped in the middle of its answer for longer than the agent file allows (model.timeout).",
  run_timeout: "The run took longer than the agent file allows (loop.run_timeout).",
  upstream_rejected: "The model endpoint refused the request. The model's name in the agent file may not exist there.",
  not_stored: "Retry sends the message again.",
  content_filter: "The provider's content filter stopped the answer.",
};

const BY_CODE = {
  __proto__: null,
  "shutting-down": "Continue asks the agent for the rest of the answer.",
  interrupted: "Continue asks the agent for the rest of the answer.",
  "not-ready": "The agent is still starting.",
  "payload-too-large": "The files together are too large. Send fewer or smaller ones.",
  "session-busy": "Another run is in progress in this session. Wait for it, or stop it.",
  "run-not-found": "The server was restarted, or the run ended too long ago.",
  timeout: "A step took longer than the agent file allows (loop.iteration_timeout).",
  "not-found": "This server may not serve AG-UI: start it with --protocol ag-ui.",
  overloaded: "The server has too many runs at the moment.",
};

export const hintFor = ({ code, reason }) => BY_REASON[reason] ?? BY_CODE[code] ?? "";
