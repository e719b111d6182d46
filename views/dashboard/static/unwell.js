// The parts that are not well, in words: what the map shows, for whoever does not see it.

import { $, h, reconcile } from "./dom.js";
import { BY_LETTER } from "./health.js";
import { href } from "./place.js";
import { on, state } from "./store.js";

const SHOWN_MAX = 9; // the worst come first; the map has all

export function startUnwell() {
  on(["all", "unwell"], draw);
}

function draw() {
  const shown = state.unwell.slice(0, SHOWN_MAX);
  const more = state.unwell.length - shown.length;
  const rows = more > 0 ? [...shown, ["", "", "", more]] : shown;
  reconcile($("unwell"), rows, (row) => `${row[0]} ${row[2]}`, (row) => row.join(), item);
}

function item([part, letter, incident, more]) {
  if (more) return h("span", { class: "dim" }, `and ${more} more`);
  const known = state.incidents.has(incident);
  const words = [h("span", { class: `state state-${letter}` }, BY_LETTER.get(letter).name), h("code", {}, part)];
  return known ? h("a", { href: href({ incident, tab: "" }), "data-go": "incident" }, words) : h("span", { class: "chip" }, words);
}
