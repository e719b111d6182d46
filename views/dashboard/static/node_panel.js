// One node in a dialog: its parts, what is wrong with them, its newest readings.

import { ask } from "./api.js";
import { $, h } from "./dom.js";
import { BY_LETTER } from "./health.js";
import { href } from "./place.js";
import { ago, brief } from "./times.js";

export async function showNode(name) {
  const dialog = $("fact-dialog");
  let node;
  try {
    node = await ask("node", { name });
  } catch (error) {
    node = { name, leaf: "", model: "", gpus: [], marks: [], problem: error.message };
  }
  const title = h("h2", { id: "fact-title" }, node.name);
  const facts = [node.leaf, node.model, node.silent ? "silent: no sample for three periods" : ""].filter(Boolean).join(" · ");
  dialog.replaceChildren(
    h("header", {}, title, h("form", { method: "dialog" }, h("button", { "aria-label": "Close" }, "Close"))),
    h("p", { class: "dim" }, node.problem || facts),
    marks(node),
    gpus(node),
  );
  dialog.showModal();
}

function marks(node) {
  if (!node.marks.length) return h("p", {}, "Nothing is known against any of its parts.");
  return h("ul", { class: "marks" }, node.marks.map(([part, letter, incident]) => h("li", {},
    h("span", { class: `state state-${letter}` }, BY_LETTER.get(letter).name), " ", h("code", {}, part), " ",
    h("a", { href: href({ incident, tab: "" }), "data-go": "incident" }, incident))));
}

const COLUMNS = [
  ["temp_c", "°C", 1], ["power_mw", "W", 1000], ["sm_clock_mhz", "MHz", 1], ["utilization_ppm", "% busy", 10_000],
  ["dram_ce_count", "ECC corrected", 1], ["dram_ue_count", "uncorrected", 1], ["remapped_rows_count", "rows remapped", 1],
];

function gpus(node) {
  const rows = node.sample?.gpus || [];
  const head = h("tr", {}, h("th", { scope: "col" }, "GPU"), rows.length ? COLUMNS.map(([, title]) => h("th", { scope: "col" }, title)) : null);
  const body = node.gpus.map((pci, at) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, `${at}  ${pci}`)),
    rows.length ? COLUMNS.map(([name, , unit]) => h("td", {}, reading(rows[at], name, unit))) : null));
  const age = node.sample ? h("p", { class: "dim" }, `read ${brief(node.sample.stored_ms)}, ${ago(node.sample.stored_ms)}`) : null;
  return h("div", {}, h("div", { class: "wide" }, h("table", {}, h("thead", {}, head), h("tbody", {}, body))), age);
}

function reading(row, name, unit) {
  const value = row?.[name];
  return value === null || value === undefined ? "–" : String(Math.round(value / unit));
}
