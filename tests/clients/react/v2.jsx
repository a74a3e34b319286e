import { CopilotChat, CopilotKitProvider, useAgent, useCopilotKit, useFrontendTool, useHumanInTheLoop, useInterrupt, useRenderTool } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { z } from "zod";
import { createRoot } from "react-dom/client";

const { server, thread, transport } = Object.fromEntries(new URLSearchParams(location.search));

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
    parameters: z.object({ colour: z.string() }),
    handler: async ({ colour }) => {
      document.body.dataset.colour = colour;
      return `painted ${colour}`;
    },
  });
  useHumanInTheLoop({
    name: "choose",
    description: "Asks the user to choose",
    parameters: z.object({ question: z.string() }),
    render: ({ args, status, respond }) =>
      status === "executing" ? <button data-choose onClick={() => respond("tea")}>{args.question}</button> : <i data-chosen={status} />,
  });
  useRenderTool({
    name: "get_weather",
    parameters: z.object({ city: z.string() }),
    render: ({ status, result }) => <i data-weather={status}>{String(result ?? "")}</i>,
  });
  useInterrupt({
    render: ({ interrupt, resolve }) => (
      <p data-interrupt>
        {interrupt.message}
        <button data-allow onClick={() => resolve({ approved: true })}>Allow</button>
        <button data-deny onClick={() => resolve({ approved: false })}>Deny</button>
      </p>
    ),
  });
  // What an app with buttons of its own does to regenerate an answer or to edit a message.
  const { agent } = useAgent();
  const { copilotkit } = useCopilotKit();
  globalThis.running = agent.isRunning;
  globalThis.messages = () => agent.messages;
  globalThis.goBack = (messages) => {
    agent.setMessages(messages);
    void copilotkit.runAgent({ agent });
  };
  return null;
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider runtimeUrl={server} useSingleEndpoint={transport === "single"} showDevConsole={false}>
    <Tools />
    <CopilotChat threadId={thread} />
  </CopilotKitProvider>,
);
