// The URL is the view: what is open, filtered, followed and replayed can be copied as a link.

const listeners = [];
const NAMES = ["incident", "tab", "words", "follow", "replay", "at"];
let place = read();

function read() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name) || ""]));
}

export function here() {
  return place;
}

export function href(changes) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...place, ...changes })) {
    if (value !== "" && value !== null) query.set(name, value);
  }
  const text = query.toString();
  return text ? `?${text}` : location.pathname;
}

// `quiet`: the place has changed already on the page, only the address follows.
export function go(changes, { quiet = false, replace = false } = {}) {
  const target = href(changes);
  place = { ...place, ...changes };
  history[replace || quiet ? "replaceState" : "pushState"](null, "", target);
  if (!quiet) for (const each of listeners) each(place);
}

export function onPlace(listener) {
  listeners.push(listener);
}

addEventListener("popstate", () => {
  place = read();
  for (const each of listeners) each(place);
});

// Links of the page move within it; with a modifier they open elsewhere, as links do.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-go]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const query = new URLSearchParams(link.getAttribute("href").replace(/^[^?]*\??/, ""));
  place = Object.fromEntries(NAMES.map((name) => [name, query.get(name) || ""]));
  history.pushState(null, "", link.getAttribute("href") || location.pathname);
  for (const each of listeners) each(place);
});
