// The document of the server and what hangs on it. The server folds; here changes are laid over it.

import { ask } from "./api.js";
import { setNow } from "./times.js";

export const state = { run: "", version: 0, nodes: [], incidents: new Map(), waiting: [], alarms: [], jobs: [], unwell: [], leaves: {}, log: {}, mode: "" };
const INCIDENTS_MAX = 1000;
const listeners = new Map();

// `parts`: names of parts of the document, or `feed` and `all`.
export function on(parts, listener) {
  for (const part of parts) {
    if (!listeners.has(part)) listeners.set(part, []);
    listeners.get(part).push(listener);
  }
}

function tell(parts, detail) {
  const told = new Set();
  for (const part of parts) {
    for (const listener of listeners.get(part) || []) {
      if (!told.has(listener)) listener(detail);
      told.add(listener);
    }
  }
}

export async function load() {
  const whole = await ask("state");
  Object.assign(state, { run: "", alarms: [], waiting: [], jobs: [], unwell: [], leaves: {} }, whole);
  state.incidents = new Map(whole.incidents.map((row) => [row.id, row]));
  setNow(state.log.log_time_ms);
  tell(["all", "nodes", "incidents", "waiting", "alarms", "jobs", "log"], { whole: true, feed: whole.feed, fresh: [] });
}

export function apply(changes) {
  if (changes.version !== undefined) state.version = changes.version;
  const parts = new Set(Object.keys(changes));
  for (const name of ["alarms", "waiting", "jobs", "unwell", "leaves", "log", "mode", "connected", "ticking", "ready"]) {
    if (parts.has(name)) state[name] = changes[name];
  }
  setNow(state.log.log_time_ms);
  const touched = [];
  for (const [at, ...rest] of changes.nodes || []) {
    state.nodes[at].splice(2, rest.length, ...rest);
    touched.push(at);
  }
  const fresh = [];
  for (const row of changes.incidents || []) {
    const before = state.incidents.get(row.id);
    if (!before || before.title !== row.title) fresh.push(row);
    state.incidents.set(row.id, row);
  }
  for (const id of changes.gone || []) state.incidents.delete(id);
  while (state.incidents.size > INCIDENTS_MAX) state.incidents.delete(state.incidents.keys().next().value);
  if (parts.has("gone")) parts.add("incidents");
  tell([...parts], { whole: false, feed: changes.feed || [], fresh, touched });
}
