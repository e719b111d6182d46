// Decisions that wait for a person: what, why, until when, and the command. The page cannot approve.

import { $, copyButton, h } from "./dom.js";
import { href } from "./place.js";
import { on, state } from "./store.js";
import { lasting, now, whole } from "./times.js";

const URGENT_MS = 120_000;

export function startWaiting() {
  on(["all", "waiting"], draw);
  on(["log"], countDown);
}

export function copyFirst() {
  const card = document.querySelector(".incident:not([hidden]) .approve .copy") || document.querySelector(".waiting:not([hidden]) .approve .copy");
  card?.click();
  return Boolean(card);
}

function draw() {
  const card = $("waiting");
  card.hidden = !state.waiting.length;
  if (card.hidden) return card.replaceChildren();
  return card.replaceChildren(h("header", {}, h("h2", { id: "waiting-title" }, "Waiting for a person"), h("span", { class: "count" }, String(state.waiting.length))), state.waiting.map(waitingCard).reduce((all, each) => (all.append(each), all), h("div")));
}

export function waitingCard(each) {
  return h("article", { class: "approve" },
    h("p", { class: "line" }, h("strong", {}, each.action.replaceAll("_", " ")), h("code", {}, each.target), deadline(each)),
    h("p", {}, each.reason),
    h("p", { class: "command" }, h("code", {}, each.approve), copyButton(each.approve)),
    h("p", { class: "command second" }, h("code", {}, each.veto), copyButton(each.veto)),
    h("p", { class: "dim line" }, h("span", {}, `decision ${each.decision}`), h("a", { href: href({ incident: each.incident, tab: "" }), "data-go": "incident" }, `incident ${each.incident}`)));
}

function deadline(each) {
  const time = h("time", { class: "deadline", "data-deadline": each.deadline_ms, title: `expires ${whole(each.deadline_ms)}` });
  tell(time);
  return time;
}

function tell(time) {
  const left = Number(time.dataset.deadline) - now();
  time.textContent = left > 0 ? `${lasting(left)} left` : "expired";
  time.classList.toggle("urgent", left < URGENT_MS);
}

function countDown() {
  document.querySelectorAll("[data-deadline]").forEach(tell);
}
