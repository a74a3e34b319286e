// @ts-check
// JSON Patch (RFC 6902) on plain JSON, and the differences between two values. Values are never changed in place.

export class PatchError extends Error {}

const HARMFUL = new Set(["__proto__", "constructor", "prototype"]);

export function apply(document, operations) {
  let value = document;
  for (const operation of operations) value = applyOne(value, operation);
  return value;
}

function applyOne(document, { op, path, from, value }) {
  const keys = keysOf(path);
  switch (op) {
    case "add": return edit(document, keys, { insert: true, value });
    case "replace": return edit(document, keys, { value });
    case "remove": return edit(document, keys, { remove: true });
    case "copy": return edit(document, keys, { insert: true, value: at(document, keysOf(from)) });
    case "move": {
      const moved = at(document, keysOf(from));
      return edit(edit(document, keysOf(from), { remove: true }), keys, { insert: true, value: moved });
    }
    case "test": {
      if (!same(at(document, keys), value)) throw new PatchError(`${path} is not what was expected`);
      return document;
    }
    default: throw new PatchError(`there is no operation ${op}`);
  }
}

export function keysOf(pointer) {
  if (pointer === "") return [];
  if (typeof pointer !== "string" || pointer[0] !== "/") throw new PatchError(`${pointer} is not a JSON Pointer`);
  return pointer.slice(1).split("/").map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

export const pointerOf = (keys) => keys.map((key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

function at(document, keys) {
  let value = document;
  for (const key of keys) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, key)) throw new PatchError(`nothing at ${pointerOf(keys)}`);
    value = value[key];
  }
  return value;
}

function edit(document, keys, change) {
  if (keys.length === 0) return change.remove ? null : change.value;
  if (document === null || typeof document !== "object") throw new PatchError(`nothing at ${pointerOf(keys)}`);
  const [key, ...rest] = keys;
  return Array.isArray(document) ? editList(document, key, rest, change) : editObject(document, key, rest, change);
}

function editList(list, key, rest, change) {
  const index = key === "-" && rest.length === 0 && change.insert ? list.length : Number(key);
  const limit = rest.length === 0 && change.insert ? list.length : list.length - 1;
  if (!/^(0|[1-9]\d*|-)$/.test(key) || !(index >= 0 && index <= limit)) throw new PatchError(`no place ${key} in a list`);
  if (rest.length > 0) return list.with(index, edit(list[index], rest, change));
  if (change.remove) return list.toSpliced(index, 1);
  return change.insert ? list.toSpliced(index, 0, change.value) : list.with(index, change.value);
}

function editObject(object, key, rest, change) {
  if (HARMFUL.has(key)) throw new PatchError(`${key} is no name for a member`);
  const known = Object.hasOwn(object, key);
  if (!known && (rest.length > 0 || !change.insert)) throw new PatchError(`nothing at ${key}`);
  if (rest.length > 0) return { ...object, [key]: edit(object[key], rest, change) };
  if (!change.remove) return { ...object, [key]: change.value };
  return Object.fromEntries(Object.entries(object).filter(([name]) => name !== key));
}

export function same(a, b) {
  if (a === b) return true;
  if (a === null || b === null || typeof a !== "object" || typeof b !== "object" || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}

const isTree = (value) => value !== null && typeof value === "object";

/** Where two values differ: [{path, kind: added | removed | changed, before, after}], at most `limit`. */
export function differences(before, after, limit = 200, keys = [], found = []) {
  if (found.length >= limit || before === after) return found;
  if (!isTree(before) || !isTree(after) || Array.isArray(before) !== Array.isArray(after)) {
    if (!same(before, after)) found.push({ path: pointerOf(keys), kind: "changed", before, after });
    return found;
  }
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const path = [...keys, key];
    if (!Object.hasOwn(after, key)) found.push({ path: pointerOf(path), kind: "removed", before: before[key] });
    else if (!Object.hasOwn(before, key)) found.push({ path: pointerOf(path), kind: "added", after: after[key] });
    else differences(before[key], after[key], limit, path, found);
    if (found.length >= limit) break;
  }
  return found;
}
