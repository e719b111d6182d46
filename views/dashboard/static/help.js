// The keys, in a dialog.

import { $, h } from "./dom.js";

const KEYS = [
  ["Go", [["g o", "overview"], ["g i", "incidents"], ["g m", "map of the cluster"], ["g f", "feed"], ["g w", "what waits for a person"], ["Esc", "back"]]],
  ["Lists", [["j  k", "next, previous"], ["Enter", "open"], ["/", "filter the feed"], ["f", "follow or pause the feed"]]],
  ["Map", [["← → ↑ ↓", "to the next node"], ["n", "next node that is not well"], ["+  −", "larger, smaller"], ["Enter", "its parts and readings"]]],
  ["Incident", [["1  2  3", "story, timeline, raw facts"], ["e", "how that is known"], ["d", "what was done"], ["c", "copy the command that approves"]]],
  ["Replay", [["o", "open a recording"], ["[  ]", "previous, next event"], ["p", "play or stop"]]],
  ["Page", [["t", "UTC, local, relative times"], ["l", "light, dark, system"], ["?", "this list"]]],
];

export function showHelp() {
  const dialog = $("help-dialog");
  if (dialog.open) return dialog.close();
  dialog.replaceChildren(
    h("header", {}, h("h2", { id: "help-title" }, "Keys"), h("form", { method: "dialog" }, h("button", {}, "Close"))),
    h("div", { class: "keys" }, KEYS.map(([title, keys]) => h("section", {}, h("h3", {}, title),
      h("dl", {}, keys.map(([key, says]) => [h("dt", {}, key.split("  ").map((each) => h("kbd", {}, each))), h("dd", {}, says)]))))),
    h("p", { class: "dim" }, "This page reads and changes nothing: what waits for a person is approved by a command in a terminal."),
  );
  return dialog.showModal();
}
