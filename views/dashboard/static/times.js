// One switch for all times: UTC as in the log, local, or relative to the log's own now.

const KINDS = ["UTC", "local", "relative"];
const listeners = [];
let kind = localStorage.getItem("times") || "UTC";
let nowMs = 0;

export function timesKind() {
  return kind;
}

export function nextKind() {
  kind = KINDS[(KINDS.indexOf(kind) + 1) % KINDS.length];
  localStorage.setItem("times", kind);
  for (const each of listeners) each();
}

export function onTimesKind(listener) {
  listeners.push(listener);
}

export function setNow(ms) {
  nowMs = ms;
}

export function now() {
  return nowMs;
}

const two = (number) => String(number).padStart(2, "0");

function clock(ms, local) {
  const at = new Date(ms);
  const parts = local
    ? [at.getHours(), at.getMinutes(), at.getSeconds()]
    : [at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()];
  return `${parts.map(two).join(":")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

function day(ms, local) {
  const at = new Date(ms);
  return local
    ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
    : at.toISOString().slice(0, 10);
}

export function whole(ms) {
  if (!ms) return "unknown";
  return `${day(ms, kind === "local")} ${clock(ms, kind === "local")}${kind === "local" ? "" : " UTC"}`;
}

export function brief(ms) {
  if (!ms) return "–";
  if (kind === "relative") return ago(ms);
  const local = kind === "local";
  return day(ms, local) === day(nowMs || ms, local) ? clock(ms, local).slice(0, 12) : `${day(ms, local).slice(5)} ${clock(ms, local).slice(0, 8)}`;
}

export function ago(ms) {
  const away = nowMs - ms;
  const words = lasting(Math.abs(away));
  return away >= 0 ? `${words} ago` : `in ${words}`;
}

export function lasting(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${two(Math.floor(ms / 1000) % 60)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${two(Math.floor(ms / 60_000) % 60)} min`;
  return `${Math.floor(ms / 86_400_000)} d ${Math.floor(ms / 3_600_000) % 24} h`;
}
