// @ts-check
// Files that wait to be sent, as AG-UI parts with their bytes. Limits are the server's, checked before anything is sent.

export const MAX_FILES = 10;
export const MAX_BYTES = 7_500_000; // 10 MB as base64
const MEGABYTE = 1_000_000;

/** {name, type, size, part} of a File; throws an Error with a sentence for the person. */
export async function readUpload(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} has ${(file.size / MEGABYTE).toFixed(1)} MB; the limit is ${MAX_BYTES / MEGABYTE} MB.`);
  if (file.size === 0) throw new Error(`${file.name} is empty.`);
  const mimeType = file.type || typeByName(file.name);
  const kind = mimeType.startsWith("image/") ? "image" : "document";
  const value = await base64(file);
  const part = { type: kind, source: { type: "data", value, mimeType }, metadata: { filename: file.name } };
  return { name: file.name, type: mimeType, size: file.size, part };
}

const TYPES = { md: "text/markdown", csv: "text/csv", txt: "text/plain", json: "application/json", yaml: "text/plain", yml: "text/plain", log: "text/plain" };

const typeByName = (name) => TYPES[name.split(".").at(-1).toLowerCase()] ?? "application/octet-stream";

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      const address = String(reader.result);
      resolve(address.slice(address.indexOf(",") + 1));
    });
    reader.addEventListener("error", () => reject(new Error(`${file.name} cannot be read.`)));
    reader.readAsDataURL(file);
  });
}

export function sizeText(bytes) {
  if (bytes === null || bytes === undefined) return "";
  if (bytes < 1000) return `${bytes} B`;
  return bytes < MEGABYTE ? `${Math.round(bytes / 1000)} kB` : `${(bytes / MEGABYTE).toFixed(1)} MB`;
}
