// The cluster in a handful of figures.

import { $, count, h } from "./dom.js";
import { isOpen, newest } from "./incidents.js";
import { percent, standing } from "./goodput.js";
import { on, state } from "./store.js";

export function startFigures() {
  on(["all", "nodes", "incidents", "waiting", "jobs"], draw);
}

function draw() {
  let gpus = 0;
  let well = 0;
  for (const node of state.nodes) {
    gpus += node[2].length;
    for (const letter of node[2]) if (letter === "." || letter === "R") well += 1;
  }
  const open = newest().filter(isOpen).length;
  const ranks = state.jobs.reduce((sum, job) => sum + (standing(job.account) ? 0 : job.world), 0);
  const submitted = state.jobs.reduce((sum, job) => sum + job.world_submitted, 0);
  const accounts = state.jobs.filter((job) => job.account);
  const worst = accounts.reduce((least, job) => (!least || job.account.productive_ppm < least.account.productive_ppm ? job : least), null);
  const shown = [
    ["GPUs well", count(well), `of ${count(gpus)}`, well < gpus ? "warn" : ""],
    ["incidents open", count(open), `of ${count(state.incidents.size)}`, open ? "bad" : ""],
    ["waiting for a person", count(state.waiting.length), "", state.waiting.length ? "warn" : ""],
    ["ranks training", count(ranks), submitted ? `of ${count(submitted)}` : "", ranks < submitted ? "warn" : ""],
    ...(worst ? [["goodput", percent(worst.account.productive_ppm), accounts.length > 1 ? `${worst.job}, the lowest` : worst.job, worst.account.productive_ppm < 900_000 ? "warn" : ""]] : []),
  ];
  $("figures").replaceChildren(...shown.map(([name, value, rest, tone]) => h("li", { class: tone }, h("span", { class: "name" }, name), h("span", {}, h("b", {}, value), rest ? h("small", {}, ` ${rest}`) : null))));
}
