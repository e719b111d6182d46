// Light, dark, or as the system says.

import { $ } from "./dom.js";

const KINDS = ["system", "light", "dark"];
const GLYPHS = { system: "◐ Auto", light: "☀ Light", dark: "☾ Dark" };

export function startTheme(onChange) {
  show();
  $("theme").addEventListener("click", () => nextTheme(onChange));
}

export function nextTheme(onChange) {
  const kind = KINDS[(KINDS.indexOf(current()) + 1) % KINDS.length];
  localStorage.setItem("theme", kind);
  show();
  onChange();
}

function current() {
  return localStorage.getItem("theme") || "system";
}

function show() {
  const kind = current();
  if (kind === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = kind;
  $("theme").textContent = GLYPHS[kind];
}
