// The cluster in a handful of figures.

import { $, count, h } from "./dom.js";
import { isOpen, newest } from "./incidents.js";
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
  const ranks = state.jobs.reduce((sum, job) => sum + job.world, 0);
  const submitted = state.jobs.reduce((sum, job) => sum + job.world_submitted, 0);
  const goodput = Object.values(state.goodput || {});
  const shown = [
    ["GPUs well", count(well), `of ${count(gpus)}`, well < gpus ? "warn" : ""],
    ["incidents open", count(open), `of ${count(state.incidents.size)}`, open ? "bad" : ""],
    ["waiting for a person", count(state.waiting.length), "", state.waiting.length ? "warn" : ""],
    ["ranks training", count(ranks), submitted ? `of ${count(submitted)}` : "", ranks < submitted ? "warn" : ""],
    ...(goodput.length ? [["goodput", `${goodput[0].percent} %`, goodput[0].job, goodput[0].percent < 90 ? "warn" : ""]] : []),
  ];
  $("figures").replaceChildren(...shown.map(([name, value, rest, tone]) => h("li", { class: tone }, h("span", { class: "name" }, name), h("span", {}, h("b", {}, value), rest ? h("small", {}, ` ${rest}`) : null))));
}
