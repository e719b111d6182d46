// One incident: verdict first, then the evidence, then what was done. Story, timeline, raw facts.

import { address, ask } from "./api.js";
import { $, copyButton, h, plural } from "./dom.js";
import { showFact } from "./fact.js";
import { outcome } from "./incidents.js";
import { go, here, href, onPlace } from "./place.js";
import { on, state } from "./store.js";
import { timeline } from "./timeline.js";
import { lasting, onTimesKind, whole } from "./times.js";
import { waitingCard } from "./waiting.js";

const TABS = ["story", "timeline", "facts"];
const panel = $("incident");
let shown = null;
let asking = 0;

export function startIncident() {
  onPlace(follow);
  onTimesKind(() => shown && draw());
  on(["all"], follow);
  on(["incidents", "waiting"], refresh);
}

export function tabTo(number) {
  if (here().incident) go({ tab: number ? TABS[number] : "" });
}

export function jumpTo(name) {
  const heading = panel.querySelector(`#${name}`);
  if (!heading) return;
  heading.scrollIntoView({ block: "start" });
  heading.focus({ preventScroll: true });
}

async function follow() {
  const { incident } = here();
  document.body.classList.toggle("with-incident", Boolean(incident));
  panel.hidden = !incident;
  if (!incident) {
    shown = null;
    return;
  }
  const fresh = shown?.id !== incident;
  await fetchShown(incident);
  if (fresh && shown) panel.querySelector("h2")?.focus();
}

async function refresh() {
  const row = shown && state.incidents.get(shown.id);
  if (row && row.last_seq !== shown.last_seq) await fetchShown(shown.id);
  else if (shown) draw();
}

async function fetchShown(id) {
  const number = (asking += 1);
  try {
    const found = await ask("incident", { id });
    if (number !== asking) return;
    shown = found;
    draw();
  } catch (error) {
    if (number !== asking) return;
    shown = null;
    panel.replaceChildren(h("p", { class: "none" }, `${id}: ${error.message}`), back());
  }
}

const back = () => h("a", { class: "back", href: href({ incident: "", tab: "" }), "data-go": "overview" }, "← Overview ", h("kbd", {}, "Esc"));

function draw() {
  const tab = TABS.includes(here().tab) ? here().tab : "story";
  const focused = panel.contains(document.activeElement) ? document.activeElement.id : "";
  panel.replaceChildren(heading(), tabs(tab), { story, timeline, facts }[tab](shown));
  if (focused) $(focused)?.focus({ preventScroll: true });
}

function heading() {
  const said = shown.said;
  const sure = shown.confidence_ppm ? `${Math.round(shown.confidence_ppm / 10_000)} % sure` : shown.verdict;
  const which = shown.culprits.length ? shown.culprits.join(", ") : shown.verdict === "insufficient" ? "Insufficient evidence" : "No part is named";
  return h("header", { class: "verdict" }, back(),
    h("p", { class: "line" }, h("span", { class: "class" }, shown.fault_class || "no verdict yet"), outcome(shown), h("span", { class: "dim" }, sure)),
    h("h2", { tabindex: "-1", id: "which" }, which),
    h("p", { class: "reason" }, said?.reason || ""),
    h("p", { class: "line dim" }, h("span", {}, shown.id), shown.job ? h("span", {}, `job ${shown.job}`) : null,
      h("span", {}, `began ${whole(shown.began_ms)}`), h("span", {}, `lasted ${lasting(shown.duration_ms)}`),
      shown.lost_gpu_ms ? h("span", {}, `cost ${lasting(shown.lost_ms)} of training, ${gpuHours(shown.lost_gpu_ms)}`) : null));
}

const gpuHours = (ms) => `${(ms / 3_600_000).toFixed(ms < 36_000_000 ? 2 : 0)} GPU hours`;

function tabs(current) {
  return h("nav", { class: "tabs", "aria-label": "Depth" }, TABS.map((tab, at) =>
    h("a", { id: `tab-${tab}`, href: href({ tab: at ? tab : "" }), "data-go": "tab", "aria-current": tab === current ? "page" : null }, tab === "facts" ? "raw facts" : tab, " ", h("kbd", {}, String(at + 1)))));
}

function story(incident) {
  const said = incident.said;
  const waits = state.waiting.filter((each) => each.incident === incident.id).map(waitingCard);
  return h("div", { class: "story" }, waits,
    h("section", {}, h("h3", { id: "evidence", tabindex: "-1" }, "How that is known"), evidence(said)),
    h("section", {}, h("h3", { id: "done", tabindex: "-1" }, "What was done"), deeds(incident)),
    said?.victims.length ? h("section", {}, h("h3", {}, "Innocent, whatever they show"), h("p", {}, names(said.victims))) : null,
    said?.missing.length ? h("section", {}, h("h3", {}, "To collect next"), h("ul", {}, said.missing.map((each) => h("li", {}, each)))) : null);
}

const VICTIMS_SHOWN = 12;

function names(all) {
  const more = all.length - VICTIMS_SHOWN;
  return [all.slice(0, VICTIMS_SHOWN).map((each) => [h("code", {}, each), " "]), more > 0 ? `and ${plural(more, "other", "others")}` : ""].flat(2);
}

function evidence(said) {
  if (!said?.evidence.length) return h("p", { class: "dim" }, "No evidence is cited.");
  return h("ol", { class: "evidence" }, said.evidence.map((each) => h("li", {},
    h("p", {}, each.says), each.text ? h("blockquote", {}, h("code", {}, each.text)) : null,
    h("p", { class: "dim" }, h("code", {}, each.fact)))));
}

const DEEDS = new Set(["decided", "done", "operated"]);

function deeds(incident) {
  const entries = incident.entries.filter((entry) => DEEDS.has(entry.certainty));
  if (!entries.length) return h("p", { class: "dim" }, "Nothing was decided or done.");
  return h("ol", { class: "deeds" }, entries.map((entry) => h("li", { class: entry.certainty },
    h("span", { class: "after" }, `+${lasting(Math.max(0, entry.stored_ms - incident.began_ms))}`),
    h("div", {}, h("p", {}, h("strong", {}, entry.fact.replaceAll("_", " ")), entry.mode ? h("span", { class: `mode mode-${entry.mode}` }, entry.mode) : null, " ", entry.text),
      entry.refused.length ? h("details", {}, h("summary", {}, `${plural(entry.refused.length, "cheaper rung was", "cheaper rungs were")} not taken`), h("ul", {}, entry.refused.map((each) => h("li", {}, each)))) : null))));
}

function facts(incident) {
  const command = `nemesis incident ${incident.id}${state.log.where} --json`;
  const file = h("a", { href: address("incident", { id: incident.id }), download: `${incident.id}.json` }, "Download");
  return h("div", { class: "facts" }, h("p", { class: "command" }, h("code", {}, command), copyButton(command), file),
    incident.entries.map((entry) => h("details", { open: incident.entries.length <= 12 },
      h("summary", {}, h("span", { class: "seq" }, String(entry.seq)), h("strong", { class: entry.certainty }, entry.fact.replaceAll("_", " ")), h("span", { class: "dim" }, whole(entry.stored_ms))),
      entry.cause.length ? h("p", { class: "dim" }, "drawn from ", entry.cause.map((seq) => [h("button", { type: "button", class: "seq", onclick: () => showFact(seq) }, String(seq)), " "])) : null,
      h("pre", { tabindex: "0" }, entry.raw))));
}
