// @ts-check
// Which addresses in an answer may become links: https, and only when it is plain where they lead (T25).

const MAX_LENGTH = 2000;
const HIDDEN = /[\u0000-\u0020\u007f-\u00a0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\\]/;

/** {href, host}, or null for what is shown as text only. */
export function safeLink(address) {
  if (address.length > MAX_LENGTH || HIDDEN.test(address) || !/^https:\/\//i.test(address)) return null;
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  // A name before the @ is meant to be mistaken for the host.
  if (url.protocol !== "https:" || url.username || url.password || !url.hostname) return null;
  return { href: url.href, host: url.host };
}

/** The label of an address that is not a link: its host if it has one. */
export function nameOf(address) {
  try {
    const url = new URL(address);
    return url.host || url.protocol;
  } catch {
    return address.slice(0, 60);
  }
}
