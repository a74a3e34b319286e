// @ts-check
// Where the server is. The page may be under a path that a proxy gave it, so every address starts from this module's own.

/** Without a slash at its end: `${ADDRESS}/awp`. */
export const ADDRESS = new URL("../..", import.meta.url).href.replace(/\/$/, "");

const PATH = new URL(ADDRESS).pathname.replace(/\/$/, "");

/** The name of what the browser keeps: agents under different paths of one host keep their own. */
export const keptAs = (name) => (PATH === "" ? name : `${name}:${PATH}`);
