// A recording: sent to the server, verified there by the real code, then scrubbed over log time.

import { ask, send } from "./api.js";
import { announce } from "./announce.js";
import { $, h, plural } from "./dom.js";
import { go, here, href, onPlace } from "./place.js";
import { load } from "./store.js";
import { listen, stop } from "./stream.js";
import { onTimesKind, whole } from "./times.js";
import { setLinked } from "./alarms.js";

const FRAME_MS = 120;
const PLAY_FRAMES = 240; // a recording plays in half a minute, however long it is
const bar = $("replay");
let replay = null;
let playing = 0;
let loading = false;
let wanted = false;

export function startReplay() {
  $("open").addEventListener("click", pickFile);
  $("file").addEventListener("change", () => { if ($("file").files[0]) take($("file").files[0]); });
  for (const name of ["dragenter", "dragover"]) addEventListener(name, (event) => { event.preventDefault(); $("drop").hidden = false; });
  $("drop").addEventListener("dragleave", () => ($("drop").hidden = true));
  addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").hidden = true;
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
  onPlace(arrive);
  onTimesKind(() => replay && drawTime());
}

export function pickFile() {
  $("file").value = "";
  $("file").click();
}

// The first document of the page: live, or of the recording that the address names.
export async function begin() {
  if (here().replay) return enter(here().replay);
  await load();
  return listen(setLinked);
}

export function playOrStop() {
  if (!replay) return;
  if (playing) return halt();
  if (moment() >= replay.to_ms) show(replay.from_ms);
  playing = setInterval(() => {
    const next = moment() + Math.max(1, (replay.to_ms - replay.from_ms) / PLAY_FRAMES);
    show(Math.min(replay.to_ms, next));
    if (next >= replay.to_ms) halt();
  }, FRAME_MS);
  drawTime();
}

export function step(by) {
  if (!replay) return;
  halt();
  const at = moment();
  const times = replay.stops.map(([ms]) => ms);
  const next = by > 0 ? times.find((ms) => ms > at) : times.findLast((ms) => ms < at);
  if (next !== undefined) show(next);
}

async function take(file) {
  announce(`verifying ${file.name}`);
  bar.hidden = false;
  bar.replaceChildren(h("p", { class: "line" }, h("strong", {}, "Verifying"), h("span", {}, `${file.name}: every conclusion is drawn again and compared`)));
  try {
    const taken = await send(file);
    announce(`${file.name}: ${verdict(taken)}`);
    go({ replay: taken.id, at: "", incident: "", tab: "", words: "" });
  } catch (error) {
    announce(error.message);
    bar.replaceChildren(h("p", { class: "line bad" }, h("strong", {}, "Not shown"), h("span", {}, error.message), h("button", { type: "button", onclick: () => (replay ? draw() : (bar.hidden = true)) }, "Dismiss")));
  }
}

async function arrive({ replay: id, at }) {
  if (id && id !== replay?.id) return enter(id);
  if (id && String(moment()) !== at && at) return show(Number(at));
  if (!id && replay) {
    halt();
    replay = null;
    bar.hidden = true;
    document.body.classList.remove("replaying");
    await load();
    listen(setLinked);
  }
  return undefined;
}

async function enter(id) {
  stop();
  try {
    replay = { id, ...(await ask("replay")) };
  } catch (error) {
    bar.hidden = false;
    bar.replaceChildren(h("p", { class: "line bad" }, h("strong", {}, "Replay"), h("span", {}, error.message), h("a", { href: href({ replay: "", at: "" }), "data-go": "live" }, "to the live log")));
    return;
  }
  document.body.classList.add("replaying");
  draw();
  await show(here().at ? Number(here().at) : replay.to_ms);
}

const moment = () => Number($("moment")?.value || 0);

async function show(ms) {
  $("moment").value = String(Math.round(ms));
  drawTime();
  go({ at: String(Math.round(ms)) }, { quiet: true });
  wanted = true;
  if (loading) return;
  loading = true;
  try {
    while (wanted) {
      wanted = false;
      await load();
    }
  } finally {
    loading = false;
  }
}

function halt() {
  clearInterval(playing);
  playing = 0;
  if (replay) drawTime();
}

function verdict(of) {
  const equal = of.processors.reduce((sum, each) => sum + each.equal_count, 0);
  if (of.verdict === "equal") return `verified, ${plural(equal, "conclusion", "conclusions")} drawn again and equal`;
  if (of.verdict === "different") return `different: ${of.processors.filter((each) => each.different).map((each) => each.name).join(", ")} conclude otherwise today`;
  return `not all verified: ${of.processors.filter((each) => each.unverified).map((each) => `${each.name}, ${each.unverified}`).join("; ") || of.notes.join("; ")}`;
}

function draw() {
  bar.hidden = false;
  const slider = h("input", { id: "moment", type: "range", min: replay.from_ms, max: replay.to_ms, step: 1, "aria-label": "Moment of the recording" });
  slider.addEventListener("input", () => { halt(); show(Number(slider.value)); });
  const marks = h("div", { class: "stops", "aria-hidden": "true" });
  const span = Math.max(1, replay.to_ms - replay.from_ms);
  for (const [ms, fact] of thinned(replay.stops)) {
    const tick = h("i", { class: fact.startsWith("fault_") || fact.startsWith("failure_") ? "loud" : "" });
    tick.style.left = `${((ms - replay.from_ms) / span) * 100}%`;
    marks.append(tick);
  }
  bar.replaceChildren(
    h("p", { class: "line" }, h("strong", {}, "Replay"), h("span", {}, replay.name), h("span", { class: `proof ${replay.verdict}`, title: replay.notes.join("\n") }, verdict(replay)),
      h("a", { class: "leave", href: href({ replay: "", at: "", incident: "", tab: "" }), "data-go": "live" }, "Back to live")),
    h("div", { class: "scrub" }, h("button", { type: "button", id: "play", onclick: playOrStop }), h("div", { class: "track" }, marks, slider), h("output", { id: "moment-text", for: "moment" })),
  );
}

function thinned(stops) {
  const every = Math.ceil(stops.length / 400) || 1;
  return stops.filter(([, fact], at) => at % every === 0 || fact === "fault_attributed");
}

function drawTime() {
  const text = whole(moment());
  $("moment-text").textContent = text;
  $("moment").setAttribute("aria-valuetext", text);
  $("play").textContent = playing ? "❚❚ Stop" : "▶ Play";
}
