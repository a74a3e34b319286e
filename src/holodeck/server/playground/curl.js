// @ts-check
// Requests of the page as commands for a shell.

const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The credential is never written out: the command takes it from a variable of the shell. */
export function curlFor(origin, { method, path, body = null, headers = {} }, isSignedIn = false) {
  const parts = ["curl -N", quote(origin + path)];
  if (isSignedIn) parts.push('-H "Authorization: Bearer $HOLODECK_KEY"');
  if (method !== "GET" && body === null) parts.push(`-X ${method}`);
  const all = body === null ? headers : { "Content-Type": "application/json", ...headers };
  for (const [name, value] of Object.entries(all)) parts.push(`-H ${quote(`${name}: ${value}`)}`);
  if (body !== null) parts.push(`-d ${quote(JSON.stringify(body))}`);
  return parts.join(" ");
}
