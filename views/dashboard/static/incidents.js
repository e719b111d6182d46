// The list of incidents, the newest first; each row is a link.

import { $, h, plural, reconcile } from "./dom.js";
import { here, href, onPlace } from "./place.js";
import { on, state } from "./store.js";
import { brief, onTimesKind, whole } from "./times.js";

const SHOWN_MAX = 100; // the list is for what is going on; older ones are found by the feed's filter

export function newest() {
  return [...state.incidents.values()].sort((a, b) => b.opened_ms - a.opened_ms || b.last_seq - a.last_seq);
}

export function isOpen(row) {
  return row.open;
}

export function startIncidents() {
  on(["all", "incidents"], draw);
  onTimesKind(draw);
  onPlace(draw);
}

function draw() {
  const all = newest();
  const list = $("incidents");
  const { incident } = here();
  const kind = localStorage.getItem("times");
  reconcile(list, all.slice(0, SHOWN_MAX), (row) => row.id, (row) => `${row.last_seq} ${row.title} ${row.outcome} ${row.open} ${row.id === incident} ${kind}`, (row) => item(row, row.id === incident));
  const open = all.filter(isOpen).length;
  $("incidents-count").textContent = all.length ? `${open} open of ${all.length}` : "";
  if (!all.length) list.replaceChildren(h("li", { class: "none" }, "No incidents. Nothing is known to be wrong."));
}

export function outcome(row) {
  return h("span", { class: `outcome outcome-${row.outcome.replaceAll(" ", "-")}` }, row.outcome);
}

function item(row, current) {
  const where = row.culprits[0] ? h("code", {}, row.culprits[0] + (row.culprits.length > 1 ? ` and ${row.culprits.length - 1} more` : "")) : null;
  return h("li", {}, h("a", { class: "incident-row", href: href({ incident: row.id, tab: "" }), "data-go": "incident", "data-row": "", "aria-current": current ? "true" : null },
    h("span", { class: "line" }, h("strong", {}, row.fault_class || "no verdict yet"), outcome(row)),
    h("span", { class: "line where" }, where || (row.fault_class ? row.title : "decided before there was a verdict")),
    h("span", { class: "line dim" }, h("time", { title: whole(row.opened_ms) }, brief(row.opened_ms)),
      row.job ? h("span", {}, `job ${row.job}`) : null, h("span", {}, plural(row.events_count, "fact", "facts")), h("span", { class: "id" }, row.id))));
}
