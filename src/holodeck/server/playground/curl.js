// Requests of the page as commands for a shell.

const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function curlFor(origin, { method, path, body = null, headers = {} }) {
  const parts = ["curl -N", quote(origin + path)];
  if (method !== "GET" && body === null) parts.push(`-X ${method}`);
  const all = body === null ? headers : { "Content-Type": "application/json", ...headers };
  for (const [name, value] of Object.entries(all)) parts.push(`-H ${quote(`${name}: ${value}`)}`);
  if (body !== null) parts.push(`-d ${quote(JSON.stringify(body))}`);
  return parts.join(" ");
}
