// Tells screen readers of new verdicts: politely, and at most every few seconds.

import { $, plural } from "./dom.js";
import { on } from "./store.js";

const PAUSE_MS = 4000;
let queue = [];
let timer = 0;

export function startAnnouncer() {
  on(["incidents"], ({ whole, fresh }) => {
    if (whole || !fresh.length) return;
    queue.push(...fresh.map((row) => `${row.title}, ${row.outcome}`));
    if (!timer) speak();
  });
}

export function announce(words) {
  $("announcer").textContent = words;
}

function speak() {
  timer = 0;
  if (!queue.length) return;
  const latest = queue[queue.length - 1];
  announce(queue.length === 1 ? `New verdict: ${latest}` : `${plural(queue.length, "new verdict", "new verdicts")}, the latest: ${latest}`);
  queue = [];
  timer = setTimeout(speak, PAUSE_MS);
}
