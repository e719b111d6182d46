// Where the time of a job went: a bar of its parts, and over time a chart, loaded when it is wanted.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { lasting } from "./times.js";

// In the order of the bar: what was paid for first. Names and meanings: processors/goodput.
const PARTS = [
  ["productive", "productive", "--part-productive"], ["degraded", "degraded", "--part-degraded"], ["redone", "redone steps", "--part-redone"],
  ["start", "start", "--part-start"], ["detection", "until detected", "--part-detection"], ["decision", "until decided", "--part-decision"],
  ["recovery", "recovery", "--part-recovery"], ["waiting", "waiting for a person", "--part-waiting"], ["stalled", "stalled, unexplained", "--part-stalled"],
  ["open", "since the last step", "--part-open"],
];
const STANDS_STILL_MS = 30_000;
let library = null;

export function percent(ppm) {
  return `${(ppm / 10_000).toFixed(ppm < 999_500 ? 1 : 0)} %`;
}

// Said of a job that finished no step for long: until the next one nobody can tell what it will be called.
export function standing(account) {
  return account && account.parts.open > STANDS_STILL_MS ? `no step for ${lasting(account.parts.open)}` : "";
}

export function bar(account) {
  const known = PARTS.filter(([part]) => account.parts[part] > 0);
  const strip = h("div", { class: "strip", "aria-hidden": "true" });
  for (const [part, name, colour] of known) {
    const piece = h("i", { title: `${name}: ${lasting(account.parts[part])}` });
    piece.style.flexGrow = String(account.parts[part]);
    piece.style.background = `var(${colour})`;
    strip.append(piece);
  }
  return h("div", {}, strip, h("ul", { class: "parts" }, known.map(([part, name, colour]) => {
    const swatch = h("i", { "aria-hidden": "true" });
    swatch.style.background = `var(${colour})`;
    return h("li", {}, swatch, `${name} `, h("b", {}, lasting(account.parts[part])));
  })));
}

export function overTime(job) {
  const details = h("details", { class: "over-time" }, h("summary", {}, "Over time"));
  details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) draw(details, job); });
  return details;
}

async function draw(details, job) {
  const place = h("div", { class: "chart" }, "Loading the chart …");
  details.append(place);
  try {
    const [spans] = await Promise.all([ask("goodput", { job }), loaded()]);
    place.replaceChildren();
    await window.Plotly.newPlot(place, traces(spans), layout(), { displayModeBar: false, responsive: true });
  } catch (error) {
    place.textContent = `No chart: ${error.message}`;
  }
}

function traces(spans) {
  const at = spans.map((span) => new Date(span.until_ms));
  return PARTS.filter(([part]) => spans.some((span) => span.parts[part] > 0)).map(([part, name, colour]) => ({
    type: "bar", name, x: at, y: spans.map((span) => share(span.parts, part)), marker: { color: resolved(colour) },
    customdata: spans.map((span) => lasting(span.parts[part])), hovertemplate: "%{customdata}",
  }));
}

function share(parts, part) {
  const whole = PARTS.reduce((sum, [name]) => sum + parts[name], 0);
  return whole ? (100 * parts[part]) / whole : 0;
}

function layout() {
  const ink = resolved("--dim");
  return {
    barmode: "stack", bargap: 0.08, height: 220, margin: { l: 44, r: 8, t: 8, b: 32 }, showlegend: false, hovermode: "x unified",
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink, size: 11, family: getComputedStyle(document.body).fontFamily },
    hoverlabel: { bgcolor: resolved("--card"), bordercolor: resolved("--line"), font: { color: resolved("--ink") } },
    yaxis: { range: [0, 100], ticksuffix: " %", gridcolor: resolved("--line"), zeroline: false, fixedrange: true },
    xaxis: { type: "date", gridcolor: "transparent", fixedrange: true },
  };
}

function resolved(name) {
  const probe = document.body.appendChild(h("i"));
  probe.style.color = `var(${name})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

// A large library, so it is fetched once somebody wants a chart; the bar above needs none.
function loaded() {
  library ||= import("/vendor/charts.js").catch((error) => {
    library = null;
    throw error;
  });
  return library;
}
