// Asks the server, about now or about the moment of a recording that is being looked at.

import { here } from "./place.js";

export async function ask(path, query = {}) {
  const { replay, at } = here();
  const all = new URLSearchParams(query);
  if (replay) all.set("replay", replay);
  if (replay && at) all.set("at", at);
  const answer = await fetch(`/api/${path}?${all}`, { headers: { Accept: "application/json" } });
  return taken(answer);
}

export async function send(file) {
  const answer = await fetch(`/api/replays?${new URLSearchParams({ name: file.name })}`, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body: file,
  });
  return taken(answer);
}

async function taken(answer) {
  if (answer.ok) return answer.json();
  const text = await answer.text();
  let said = text.trim() || `${answer.status} ${answer.statusText}`;
  if (answer.headers.get("Content-Type")?.startsWith("application/json")) {
    const { message, hint } = JSON.parse(text).error;
    said = hint ? `${message}; ${hint}` : message;
  }
  throw new Error(said);
}
