// Shows /openapi.json and lets people try it. Loads nothing from elsewhere; builds no HTML from text.
"use strict";

const ROOT = document.documentElement.dataset.root; // the path under which a proxy has the server

const element = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

const resolve = (schema, root, depth = 0) => {
  if (!schema || typeof schema !== "object" || depth > 8) return schema;
  if (schema.$ref) return resolve(schema.$ref.split("/").slice(1).reduce((at, key) => at?.[key], root), root, depth + 1);
  if (Array.isArray(schema)) return schema.map((item) => resolve(item, root, depth + 1));
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, resolve(value, root, depth + 1)]));
};

const pretty = (value) => JSON.stringify(value, null, 2);

const schemaBlock = (title, schema, root) =>
  element("div", {}, element("div", { className: "quiet", textContent: title }), element("pre", { textContent: pretty(resolve(schema, root)) }));

function field(parameter) {
  const input = element("input", { name: parameter.name, required: Boolean(parameter.required), placeholder: parameter.schema?.type ?? "" });
  const label = element("label", { textContent: `${parameter.name} (${parameter.in})${parameter.description ? ": " + parameter.description : ""}` });
  return { parameter, input, node: element("div", {}, label, input) };
}

async function send({ method, path, fields, body, output, signal }) {
  let url = path;
  const query = new URLSearchParams();
  const headers = {};
  for (const { parameter, input } of fields) {
    if (input.value === "") continue;
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    if (parameter.in === "query") query.set(parameter.name, input.value);
    if (parameter.in === "header") headers[parameter.name] = input.value;
  }
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(ROOT + url + (query.size ? `?${query}` : ""), { method, headers, body: body?.value, signal });
  output.textContent = `${response.status} ${response.statusText}\n` + [...response.headers].map(([k, v]) => `${k}: ${v}`).join("\n") + "\n\n";
  const type = response.headers.get("content-type") ?? "";
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += value;
    if (type.startsWith("text/event-stream")) output.append(value);
  }
  if (!type.startsWith("text/event-stream")) {
    try { output.append(pretty(JSON.parse(text))); } catch { output.append(text); }
  }
}

function tryIt(path, method, operation, root) {
  const fields = (operation.parameters ?? []).map((parameter) => field(resolve(parameter, root)));
  const content = operation.requestBody?.content?.["application/json"];
  const body = content && element("textarea", { value: pretty(content.schema?.example ?? {}), spellcheck: false });
  const output = element("pre", { hidden: true });
  const button = element("button", { type: "submit", textContent: "Send" });
  const stop = element("button", { type: "button", textContent: "Stop reading", disabled: true });
  const form = element("form", {}, ...fields.map((each) => each.node));
  if (body) form.append(element("label", { textContent: "Body" }), body);
  form.append(button, stop, output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const controller = new AbortController();
    stop.onclick = () => controller.abort();
    button.disabled = !(stop.disabled = false);
    output.hidden = false;
    output.textContent = "…";
    try {
      await send({ method: method.toUpperCase(), path, fields, body, output, signal: controller.signal });
    } catch (error) {
      output.append(`\n${error.message}`);
    } finally {
      button.disabled = !(stop.disabled = true);
    }
  });
  return form;
}

function show(path, method, operation, root) {
  const inner = element("div");
  if (operation.description) inner.append(element("p", { textContent: operation.description }));
  const content = operation.requestBody?.content?.["application/json"];
  if (content) inner.append(schemaBlock("Request", content.schema, root));
  for (const [status, response] of Object.entries(operation.responses ?? {})) {
    for (const [type, { schema }] of Object.entries(response.content ?? {})) inner.append(schemaBlock(`${status} · ${type}`, schema, root));
  }
  inner.append(tryIt(path, method, operation, root));
  const summary = element(
    "summary", {},
    element("span", { className: "method", textContent: method.toUpperCase() }),
    element("code", { textContent: path }),
    element("span", { className: "quiet", textContent: operation.summary ?? "" }),
  );
  return element("details", {}, summary, inner);
}

async function main() {
  const place = document.getElementById("operations");
  try {
    const root = await (await fetch(`${ROOT}/openapi.json`)).json();
    document.title = document.getElementById("title").textContent = root.info.title;
    document.getElementById("description").textContent = root.info.description ?? "";
    const groups = new Map();
    for (const [path, operations] of Object.entries(root.paths)) {
      for (const [method, operation] of Object.entries(operations)) {
        const tag = operation.tags?.[0] ?? "Other";
        if (!groups.has(tag)) groups.set(tag, []);
        groups.get(tag).push(show(path, method, operation, root));
      }
    }
    place.replaceChildren(...[...groups].flatMap(([tag, nodes]) => [element("h2", { textContent: tag }), ...nodes]));
  } catch (error) {
    place.textContent = `The description could not be loaded: ${error.message}`;
  }
}

main();
