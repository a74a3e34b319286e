import { CopilotKit, useCopilotAction, useCopilotChat, useFrontendTool, useHumanInTheLoop } from "@copilotkit/react-core";
import { CopilotChat } from "@copilotkit/react-ui";
import "@copilotkit/react-ui/styles.css";
import { createRoot } from "react-dom/client";

const { server, thread } = Object.fromEntries(new URLSearchParams(location.search));

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
