import { CopilotKit, useCopilotAction, useCopilotChat, useFrontendTool, useHumanInTheLoop } from "@copilotkit/react-core";
import { CopilotChat } from "@copilotkit/react-ui";
import "@copilotkit/react-ui/styles.css";
import { createRoot } from "react-dom/client";

const { server, thread } = Object.fromEntries(new URLSearchParams(location.search));

// A page asks the server for the thread's history when it opens, and replaces its messages by the answer: a message that is
// typed before that may be lost. The tests wait for it.
const plainFetch = globalThis.fetch;
globalThis.connected = false;
globalThis.fetch = async (resource, options) => {
  const connects = /\/connect\b/.test(String(resource?.url ?? resource)) || /"agent\/connect"/.test(String(options?.body ?? ""));
  const response = await plainFetch(resource, options);
  if (connects) response.clone().text().finally(() => setTimeout(() => { globalThis.connected = true; }));
  return response;
};

function Tools() {
  useFrontendTool({
    name: "change_background",
    description: "Paints the page",
    parameters: [{ name: "colour", type: "string", required: true }],
    handler: async ({ colour }) => {
      document.body.dataset.colour = colour;
      return `painted ${colour}`;
    },
  });
  useCopilotAction({
    name: "note",
    description: "Keeps a note",
    parameters: [{ name: "text", type: "string", required: true }],
    handler: async ({ text }) => {
      document.body.dataset.note = text;
      return "noted";
    },
  });
  useHumanInTheLoop({
    name: "choose",
    description: "Asks the user to choose",
    parameters: [{ name: "question", type: "string", required: true }],
    render: ({ args, status, respond }) =>
      status === "executing" ? <button data-choose onClick={() => respond("tea")}>{args.question}</button> : <i data-chosen={status} />,
  });
  useCopilotAction({
    name: "get_weather",
    available: "disabled",
    parameters: [{ name: "city", type: "string" }],
    render: ({ status, result }) => <i data-weather={status}>{typeof result === "string" ? result : JSON.stringify(result ?? "")}</i>,
  });
  globalThis.running = useCopilotChat().isLoading;
  return null;
}

createRoot(document.getElementById("root")).render(
  <CopilotKit runtimeUrl={server} threadId={thread} showDevConsole={false}>
    <Tools />
    <CopilotChat />
  </CopilotKit>,
);
