// The jobs: who trains, where it stands, and where its time went.

import { $, count, h, plural, reconcile } from "./dom.js";
import { bar, overTime, percent, standing } from "./goodput.js";
import { on, state } from "./store.js";

export function startJobs() {
  on(["all", "jobs"], draw);
}

function draw() {
  const box = $("jobs");
  if (!state.jobs.length) return box.replaceChildren(h("p", { class: "none" }, "No job has been submitted."));
  for (const child of [...box.children]) if (!child.dataset.key) child.remove();
  return reconcile(box, state.jobs, (job) => job.job, (job) => JSON.stringify(job), item);
}

function item(job) {
  const opened = document.querySelector(`[data-key="${CSS.escape(job.job)}"] .over-time[open]`);
  const whole = job.world === job.world_submitted;
  return h("article", { class: "job" },
    h("p", { class: "line" }, h("strong", {}, job.job), job.account ? h("span", { class: "dim" }, `${percent(job.account.productive_ppm)} productive`) : null, h("span", { class: whole ? "" : "short" }, `${count(job.world)} of ${count(job.world_submitted)} ranks`), standing(job.account) ? h("span", { class: "short" }, standing(job.account)) : null),
    h("p", { class: "line dim" }, h("span", {}, plural(job.nodes_count, "node", "nodes")), h("span", {}, plural(job.spares_count, "spare", "spares")), h("span", {}, `epoch ${job.epoch}`), job.step ? h("span", {}, `step ${count(job.step)}`) : null),
    job.account ? bar(job.account) : null, job.account ? opened || overTime(job.job) : null);
}
