// Starts the page: each part hangs itself on the store, then the first document is asked for.

import { startAlarms, setLinked } from "./alarms.js";
import { startAnnouncer } from "./announce.js";
import { $, count } from "./dom.js";
import { startFeed } from "./feed.js";
import { startFigures } from "./figures.js";
import { showHelp } from "./help.js";
import { startIncident } from "./incident.js";
import { startIncidents } from "./incidents.js";
import { startJobs } from "./jobs.js";
import { startKeys } from "./keys.js";
import { recolour, startMap } from "./map.js";
import { begin, startReplay } from "./replay.js";
import { on, state } from "./store.js";
import { startTheme } from "./theme.js";
import { nextKind, onTimesKind, timesKind, whole } from "./times.js";
import { startUnwell } from "./unwell.js";
import { startWaiting } from "./waiting.js";

startTheme(recolour);
for (const start of [startAlarms, startFigures, startMap, startUnwell, startWaiting, startIncidents, startJobs, startFeed, startIncident, startReplay, startAnnouncer]) start();
startKeys(recolour);
$("help").addEventListener("click", showHelp);
$("times").addEventListener("click", nextKind);
onTimesKind(showTimes);
on(["all", "log", "connected", "ready"], showLog);
showTimes();
start();

async function start() {
  try {
    await begin();
  } catch (error) {
    setLinked(false);
    setTimeout(start, 1000);
    if (!(error instanceof TypeError)) throw error; // a fetch that failed; all else is ours
  }
}

function showTimes() {
  $("times").textContent = `Times ${timesKind()}`;
  if (state.log.cell !== undefined) showLog();
}

function showLog() {
  $("cell").textContent = state.log.cell || "";
  $("pulse").textContent = state.log.last_seq ? `log time ${whole(state.log.log_time_ms).replace(/\.\d+/, "")} · ${count(state.log.events_count)} events · sequence ${count(state.log.last_seq)}` : "nothing in the log yet";
  document.title = `${state.waiting.length ? `(${state.waiting.length}) ` : ""}NEMESIS ${state.log.cell || ""}`.trim();
}
