// The feed: newest first, only rows in view are in the page, nothing jumps under a reader.

import { ask } from "./api.js";
import { $, count, h } from "./dom.js";
import { showFact } from "./fact.js";
import { go, here, href, onPlace } from "./place.js";
import { on } from "./store.js";
import { brief, onTimesKind, whole } from "./times.js";

const ROW_PX = 28;
const SPARE_ROWS = 6;
const KEPT_MAX = 5000; // older ones are asked for again
const PAGE = 200;
const LOUD = new Set(["fault_attributed", "failure_predicted", "recovery_withheld", "attempt_failed", "attempt_outcome_unknown", "processor_diverged", "log_shortened"]);

const scroll = $("feed-scroll");
const list = $("feed");
let rows = []; // newest first: [seq, stored_ms, fact, key, text, incident, certainty]
let held = []; // came while the reader was elsewhere
let following = true;
let cursor = -1;
let atEnd = false;
let fetching = false;
let asked = false;

export function startFeed() {
  following = here().follow !== "0";
  $("filter").value = here().words;
  on(["all"], ({ feed }) => restart(feed));
  on(["feed"], ({ feed, whole: all }) => { if (!all) arrive(feed); });
  scroll.addEventListener("scroll", onScroll, { passive: true });
  scroll.addEventListener("keydown", onKey);
  list.addEventListener("click", onClick);
  $("follow").addEventListener("click", () => follow(!following));
  $("fresh").addEventListener("click", () => follow(true));
  $("filter").addEventListener("input", debounced(filter, 200));
  new ResizeObserver(draw).observe(scroll);
  onTimesKind(redraw);
  onPlace(({ words }) => { if (words !== $("filter").value) { $("filter").value = words; filter(); } });
  showFollow();
}

export function toggleFollow() {
  follow(!following);
}

export function focusFeed() {
  cursor = Math.max(0, cursor);
  scroll.focus();
  redraw();
}

function restart(feed) {
  rows = feed.filter(wanted).reverse();
  held = [];
  atEnd = feed.length < PAGE;
  cursor = -1;
  if (here().words) filter();
  redraw();
  showFollow();
}

function arrive(feed) {
  const fresh = feed.filter(wanted).reverse();
  if (!fresh.length) return;
  if (following) take(fresh);
  else held = [...fresh, ...held].slice(0, KEPT_MAX);
  showFollow();
}

function take(fresh) {
  rows = [...fresh, ...rows];
  if (cursor >= 0) cursor += fresh.length;
  if (rows.length > KEPT_MAX) {
    rows.length = KEPT_MAX;
    atEnd = false;
  }
  redraw();
}

function follow(on_) {
  following = on_;
  if (following) {
    take(held);
    held = [];
    scroll.scrollTop = 0;
  }
  go({ follow: following ? "" : "0" }, { quiet: true });
  showFollow();
}

function showFollow() {
  $("follow").setAttribute("aria-pressed", String(following));
  $("follow").firstChild.textContent = following ? "Following " : "Paused ";
  $("fresh").hidden = following || !held.length;
  $("fresh").textContent = `${count(held.length)} new`;
}

function wanted(row) {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const text = `${row[2]} ${row[3]} ${row[5]} ${row[6]} ${row[4]}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

async function filter() {
  const words = $("filter").value.trim();
  go({ words }, { quiet: true });
  const found = await ask("feed", { words, limit: PAGE });
  if (words !== $("filter").value.trim()) return;
  rows = found.reverse();
  held = [];
  cursor = -1;
  atEnd = found.length < PAGE;
  scroll.scrollTop = 0;
  redraw();
  showFollow();
}

async function older() {
  if (fetching || atEnd || !rows.length) return;
  fetching = true;
  try {
    const found = await ask("feed", { before: rows[rows.length - 1][0], limit: PAGE, words: $("filter").value.trim() });
    rows.push(...found.reverse());
    atEnd = found.length < PAGE;
    redraw();
  } finally {
    fetching = false;
  }
}

function onScroll() {
  if (following && scroll.scrollTop > ROW_PX * 2) follow(false); // somebody reads
  draw();
  if (scroll.scrollTop + scroll.clientHeight > (rows.length - 20) * ROW_PX) older();
}

function redraw() {
  list.dataset.from = "";
  draw();
}

function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    paint();
  });
}

function paint() {
  list.style.height = `${Math.max(1, rows.length) * ROW_PX}px`;
  const first = Math.max(0, Math.floor(scroll.scrollTop / ROW_PX) - SPARE_ROWS);
  const last = Math.min(rows.length, first + Math.ceil(scroll.clientHeight / ROW_PX) + 2 * SPARE_ROWS);
  if (list.dataset.from === `${first}-${last}`) return;
  list.dataset.from = `${first}-${last}`;
  const shown = [];
  for (let at = first; at < last; at += 1) shown.push(row(rows[at], at));
  if (!rows.length) shown.push(h("li", { class: "none" }, $("filter").value ? "Nothing like this in the feed." : "Nothing has been concluded yet."));
  list.replaceChildren(...shown);
}

function row([seq, storedMs, fact, key, text, incident, certainty], at) {
  const item = h("li", { class: `row ${certainty}${LOUD.has(fact) ? " loud" : ""}${at === cursor ? " here" : ""}`, "data-seq": seq, "data-at": at },
    h("time", { title: `${whole(storedMs)}, sequence ${seq}` }, brief(storedMs)),
    h("span", { class: "kind", title: certainty }, fact.replaceAll("_", " ")),
    h("span", { class: "key" }, key),
    h("span", { class: "said", title: text }, text),
    incident ? h("a", { class: "of", href: href({ incident, tab: "" }), "data-go": "incident", tabindex: "-1" }, incident) : null);
  item.style.transform = `translateY(${at * ROW_PX}px)`;
  return item;
}

function onClick(event) {
  const item = event.target.closest("li[data-seq]");
  if (!item || event.target.closest("a")) return;
  cursor = Number(item.dataset.at);
  redraw();
  showFact(Number(item.dataset.seq));
}

function onKey(event) {
  const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in steps) move(steps[event.key]);
  else if (event.key === "Enter" && rows[cursor]) open(rows[cursor]);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function open(chosen) {
  if (chosen[5]) go({ incident: chosen[5], tab: "" });
  else showFact(chosen[0]);
}

function move(step) {
  cursor = Math.min(rows.length - 1, Math.max(0, cursor + step));
  const top = cursor * ROW_PX;
  if (top < scroll.scrollTop) scroll.scrollTop = top;
  else if (top + ROW_PX > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + ROW_PX - scroll.clientHeight;
  redraw();
}

function debounced(action, ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, ms);
  };
}
