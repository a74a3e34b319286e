// A2A's SDK for JavaScript: node a2a_driver.mjs <scenarios on stdin >results on stdout
// A scenario is {name, url, version: "1.0" | "0.3", transport: "JSONRPC" | "HTTP+JSON"}: the package of that version plays the same
// turns as a stock client does, from the card on. Results are JSON of the package's own version.
import { randomUUID } from "node:crypto";
import { json } from "node:stream/consumers";
import * as sdk from "@a2a-js/sdk";
import * as modern from "@a2a-js/sdk/client";
import * as legacy from "a2a-legacy/client";

const DIALECTS = {
  "1.0": {
    ...modern,
    message: (text, more) => sdk.Message.fromJSON({ messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], ...more }),
    task: (result) => sdk.Task.toJSON(result),
    update: (update) => sdk.StreamResponse.toJSON(update),
    ids: ({ task }) => task && { contextId: task.contextId, taskId: task.id },
    shows: ({ artifactUpdate }) => artifactUpdate !== undefined,
    immediately: { returnImmediately: true },
    register: (client, taskId, id, url) => client.createTaskPushNotificationConfig({ tenant: "", id, taskId, url, token: "t", authentication: { scheme: "Bearer", credentials: "c" } }),
    named: (taskId, id) => ({ tenant: "", taskId, id }),
    registered: ({ configs }) => configs,
  },
  "0.3": {
    ...legacy,
    message: (text, more) => ({ kind: "message", messageId: randomUUID(), role: "user", parts: [{ kind: "text", text }], ...more }),
    task: (result) => result,
    update: (update) => update,
    ids: ({ kind, contextId, id }) => (kind === "task" ? { contextId, taskId: id } : undefined),
    shows: ({ kind }) => kind === "artifact-update",
    immediately: { blocking: false },
    register: (client, taskId, id, url) => client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: { id, url, token: "t", authentication: { schemes: ["Bearer"], credentials: "c" } } }),
    named: (taskId, id) => ({ id: taskId, pushNotificationConfigId: id }),
    registered: (configs) => configs.map(({ pushNotificationConfig }) => pushNotificationConfig),
  },
};

async function play({ url, version, transport }) {
  const a2a = DIALECTS[version];
  const Transport = transport === "JSONRPC" ? a2a.JsonRpcTransportFactory : a2a.RestTransportFactory;
  const client = await new a2a.ClientFactory({ transports: [new Transport()] }).createFromUrl(url);
  const card = await client.getAgentCard();

  const first = a2a.task(await client.sendMessage({ message: a2a.message("hello") }));
  const second = a2a.task(await client.sendMessage({ message: a2a.message("what did I say", { contextId: first.contextId }) }));

  const address = "http://127.0.0.1:9/hook";
  await a2a.register(client, first.id, "c1", address);
  await client.getTaskPushNotificationConfig(a2a.named(first.id, "c1"));
  const registered = a2a.registered(await client.listTaskPushNotificationConfig(a2a.named(first.id, "")));
  await client.deleteTaskPushNotificationConfig(a2a.named(first.id, "c1"));
  const left = a2a.registered(await client.listTaskPushNotificationConfig(a2a.named(first.id, "")));

  const updates = [];
  for await (const update of client.sendMessageStream({ message: a2a.message("weather") })) updates.push(a2a.update(update));

  // A task that never ends: the stream is cut at its first words, read again, and the task is cancelled.
  let ids;
  for await (const update of client.sendMessageStream({ message: a2a.message("stop me") })) {
    ids ??= a2a.ids(a2a.update(update));
    if (a2a.shows(a2a.update(update))) break;
  }
  const followed = [];
  let cancelled;
  for await (const update of client.resubscribeTask({ id: ids.taskId })) {
    followed.push(a2a.update(update));
    cancelled ??= client.cancelTask({ id: ids.taskId });
  }
  const read = a2a.task(await client.getTask({ id: ids.taskId }));

  const error = await client.getTask({ id: "nothing" }).then(() => null, ({ name, message }) => ({ name, message }));
  const again = await client.cancelTask({ id: first.id }).then(() => null, ({ name, message }) => ({ name, message }));
  const begun = a2a.task(await client.sendMessage({ message: a2a.message("stop me"), configuration: a2a.immediately }));
  const ended = a2a.task(await client.cancelTask({ id: begun.id }));
  return { card: card.name, first, second, registered, left, updates, followed, cancelled: a2a.task(await cancelled), read, error, again, begun, ended };
}

for (const scenario of await json(process.stdin)) {
  process.stdout.write(`${JSON.stringify({ name: scenario.name, ...(await play(scenario)) })}\n`);
}
process.exit(0);
