// What must be known before the rest is believed: mode, pauses, breakers, the log's own trouble.

import { $, copyButton, h, reconcile } from "./dom.js";
import { here } from "./place.js";
import { on, state } from "./store.js";

const SHADOW = { id: "shadow", level: "info", title: "Shadow", text: "NEMESIS decides and records, and does not act. What it would have done is marked shadow.", hint: "" };
const READING = { id: "reading", level: "info", title: "Reading", text: "The past of this log is being read; what is shown is not yet complete.", hint: "" };
const LOST = { id: "lost", level: "alarm", title: "Stale", text: "The dashboard's server does not answer. What is shown is as it was; it comes back by itself.", hint: "" };
const AWAY = { id: "away", level: "alarm", title: "Log away", text: "The dashboard's server cannot reach the log. What is shown is as it was.", hint: "nemesis status" };
const CLOCK = { id: "clock", level: "warn", title: "No clock", text: "No tick for more than five seconds: log time stands still, and deadlines with it.", hint: "nemesis status" };
let linked = true;

export function startAlarms() {
  on(["all", "alarms", "mode", "ready", "connected", "ticking"], draw);
}

export function setLinked(yes) {
  if (yes === linked) return;
  linked = yes;
  draw();
}

function lines() {
  const live = !here().replay;
  return [
    live && !linked ? LOST : null,
    live && linked && state.ready && state.connected === false ? AWAY : null,
    live && linked && state.ready && state.connected && state.ticking === false ? CLOCK : null,
    live && linked && state.ready === false ? READING : null,
    ...state.alarms,
    state.mode === "shadow" ? SHADOW : null,
  ].filter(Boolean);
}

function draw() {
  document.body.classList.toggle("stale", !linked && !here().replay);
  const mode = $("mode");
  mode.textContent = state.mode;
  mode.className = `mode mode-${state.mode}`;
  mode.title = { shadow: "decides and records, does not act", approve: "some or all decisions wait for a person", act: "decisions are carried out" }[state.mode] || "";
  reconcile($("alarms"), lines(), (line) => line.id, (line) => `${line.level}${line.title}${line.text}`, item);
}

const command = (text) => h("span", { class: "command" }, h("code", {}, text), copyButton(text));

function item({ level, title, text, hint }) {
  return h("div", { class: `alarm ${level}` }, h("strong", {}, title), h("span", {}, text), hint ? command(hint === "nemesis status" ? hint + (state.log.where || "") : hint) : null);
}
