// Every key of the page, in one place. Keys of the map and of the feed are theirs while they have focus.

import { $ } from "./dom.js";
import { focusFeed, toggleFollow } from "./feed.js";
import { showHelp } from "./help.js";
import { jumpTo, tabTo } from "./incident.js";
import { nextUnwell } from "./map.js";
import { go, here } from "./place.js";
import { pickFile, playOrStop, step } from "./replay.js";
import { nextTheme } from "./theme.js";
import { nextKind } from "./times.js";
import { copyFirst } from "./waiting.js";

let afterG = 0;

export function startKeys(onTheme) {
  const keys = {
    "?": showHelp, "/": () => overview(() => $("filter").focus()), f: toggleFollow, t: nextKind, l: () => nextTheme(onTheme),
    n: () => overview(nextUnwell), j: () => move(1), k: () => move(-1), Escape: back,
    1: () => tabTo(0), 2: () => tabTo(1), 3: () => tabTo(2), e: () => story("evidence"), d: () => story("done"), c: copyFirst,
    o: pickFile, p: playOrStop, "[": () => step(-1), "]": () => step(1),
  };
  const places = {
    o: () => overview(() => $("main").focus()), i: () => overview(() => rows()[0]?.focus()), m: () => overview(() => $("map").focus()),
    f: () => overview(focusFeed), w: () => overview(() => $("waiting").querySelector("button")?.focus()),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    const second = Date.now() - afterG < 1500;
    afterG = event.key === "g" ? Date.now() : 0;
    const action = second ? places[event.key] : keys[event.key];
    if (!action || (document.querySelector("dialog[open]") && event.key !== "?")) return;
    event.preventDefault();
    action();
  });
}

function typing(event) {
  const field = event.target.closest("input[type=search],textarea,select");
  if (field && event.key === "Escape") {
    field.blur();
    $("feed-scroll").focus();
    event.preventDefault();
  }
  return Boolean(field);
}

function overview(then) {
  if (here().incident) go({ incident: "", tab: "" });
  then();
}

function story(heading) {
  if (!here().incident) return;
  if (here().tab) tabTo(0);
  jumpTo(heading);
}

function back() {
  if (!here().incident) return $("main").focus();
  const id = here().incident;
  go({ incident: "", tab: "" });
  return rows().find((row) => row.getAttribute("href").includes(encodeURIComponent(id)))?.focus();
}

const rows = () => [...document.querySelectorAll("#incidents a")];

function move(by) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  const next = all[Math.min(all.length - 1, Math.max(0, at + by))] || all[0];
  next?.focus();
}
