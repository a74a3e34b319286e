// @ts-check
// How the page looks: its theme, and the tint that the frontend tool gives it.

import { byId } from "./dom.js";

const KEPT = "holodeck.theme";
export const THEMES = ["auto", "light", "dark"];

export function setTheme(theme) {
  localStorage.setItem(KEPT, theme);
  document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  button.title = `Theme: ${theme}`;
  button.setAttribute("aria-label", button.title);
}

export const keptTheme = () => localStorage.getItem(KEPT) ?? "auto";

/** The frontend tool: a tint behind the conversation, light enough to read on. */
export function paint(colour) {
  if (colour !== null && !CSS.supports("color", colour)) return false;
  byId("chat").style.setProperty("--tint", colour ?? "transparent");
  return true;
}
