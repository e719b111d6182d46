// One fact of the log, raw, in a dialog.

import { ask } from "./api.js";
import { $, copyButton, h } from "./dom.js";

export async function showFact(seq) {
  const dialog = $("fact-dialog");
  let fact;
  try {
    fact = await ask("fact", { seq });
  } catch (error) {
    fact = { seq, subject: "", raw: error.message };
  }
  dialog.replaceChildren(
    h("header", {}, h("h2", { id: "fact-title" }, `Fact ${fact.seq}`), copyButton(fact.raw),
      h("form", { method: "dialog" }, h("button", {}, "Close"))),
    h("p", { class: "dim" }, h("code", {}, fact.subject)),
    h("pre", { tabindex: "0" }, fact.raw),
  );
  if (!dialog.open) dialog.showModal();
}
