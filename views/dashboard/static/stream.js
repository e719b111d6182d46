// Listens for changes. The browser comes back by itself and says which version it had.

import { apply, load, state } from "./store.js";

let source = null;

export function listen(onLink) {
  stop();
  source = new EventSource(`/api/changes?since=${state.run}-${state.version}`);
  source.onopen = () => onLink(true);
  source.onerror = () => onLink(false);
  source.onmessage = async (event) => {
    const changes = JSON.parse(event.data);
    if (!changes.layout) return apply(changes);
    stop();
    await again(onLink);
    return undefined;
  };
}

async function again(onLink) {
  try {
    await load();
    listen(onLink);
  } catch {
    onLink(false);
    setTimeout(() => again(onLink), 1000);
  }
}

export function stop() {
  source?.close();
  source = null;
}
