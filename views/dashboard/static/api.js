// Asks the server, about now or about the moment of a recording that is being looked at.

import { here } from "./place.js";

const TRIES = 3;
const RETRY_MS = 300;

export function address(path, query = {}) {
  const { replay, at } = here();
  const all = new URLSearchParams(query);
  if (replay) all.set("replay", replay);
  if (replay && at) all.set("at", at);
  return `/api/${path}?${all}`;
}

export async function ask(path, query = {}) {
  return taken(await fetched(address(path, query)));
}

// A look-up that the network cut off is made again: nothing is changed by asking twice.
async function fetched(url) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await fetch(url, { headers: { Accept: "application/json" } });
    } catch (error) {
      if (tries === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
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
