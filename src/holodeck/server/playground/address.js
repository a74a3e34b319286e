// @ts-check
// The server's address. A proxy may serve the page under a path, so every address is relative to this module's own.

/** Without a slash at its end: `${ADDRESS}/awp`. */
export const ADDRESS = new URL("../..", import.meta.url).href.replace(/\/$/, "");

const PATH = new URL(ADDRESS).pathname.replace(/\/$/, "");

/** The key of values in the browser's storage: agents under different paths of one host have separate ones. */
export const keptAs = (name) => (PATH === "" ? name : `${name}:${PATH}`);
