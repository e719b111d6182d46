// The incident as lanes over time: what was seen, concluded, decided, done; quiet stretches folded.

import { h, plural, s } from "./dom.js";
import { lasting, whole } from "./times.js";

const LANES = [["observed", "seen"], ["inferred", "concluded"], ["decided", "decided"], ["done", "done"], ["operated", "people"]];
const WIDTH = 1000;
const LEFT = 92;
const LANE_PX = 58;
const TOP = 34;
const QUIET_MS = 60_000;
const FOLD_PX = 64;
const BAD = new Set(["attempt_failed", "attempt_outcome_unknown", "recovery_withheld", "decision_vetoed"]);

export function timeline(incident) {
  const points = pointsOf(incident);
  const lanes = LANES.filter(([certainty]) => points.some((point) => point.lane === certainty));
  const scale = scaleOf(points.map((point) => point.ms));
  const height = TOP + lanes.length * LANE_PX + 26;
  const y = new Map(lanes.map(([certainty], at) => [certainty, TOP + at * LANE_PX + LANE_PX / 2]));
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `Timeline of ${plural(points.length, "fact", "facts")} over ${lasting(incident.duration_ms)}; listed below` },
    lanes.map(([certainty, name], at) => [
      s("rect", { class: at % 2 ? "lane odd" : "lane", x: 0, y: TOP + at * LANE_PX, width: WIDTH, height: LANE_PX }),
      s("text", { class: "lane-name", x: 12, y: y.get(certainty) + 4 }, name),
    ]).flat(),
    scale.folds.map((fold) => folded(fold, height)).flat(), ticks(scale, points, height), spans(points, scale, y),
    points.map((point) => mark(point, scale.at(point.ms), y.get(point.lane))), labels(points, scale, y));
  return h("div", { class: "timeline" }, h("div", { class: "wide" }, picture), listed(points, incident));
}

function pointsOf(incident) {
  const points = incident.entries.map((entry) => ({ ms: entry.stored_ms, lane: entry.certainty, name: entry.fact.replaceAll("_", " "), fact: entry.fact, text: entry.text, seq: entry.seq, decision: entry.decision, mode: entry.mode }));
  if (incident.seen) points.unshift({ ms: incident.seen.at_ms, lane: "observed", name: incident.seen.fact, fact: incident.seen.fact, text: `seen by ${incident.seen.node}, by its clock`, seq: incident.seen.seq, decision: "", mode: "" });
  return points.filter((point) => LANES.some(([certainty]) => certainty === point.lane));
}

// A map from time to pixels in which a gap longer than a minute is as wide as a fold.
function scaleOf(times) {
  const sorted = [...new Set(times)].sort((a, b) => a - b);
  const gaps = sorted.slice(1).map((ms, at) => ms - sorted[at]);
  const foldsCount = gaps.filter((gap) => gap > QUIET_MS).length;
  const shownMs = gaps.reduce((sum, gap) => sum + (gap > QUIET_MS ? 0 : gap), 0);
  const room = WIDTH - LEFT - 110 - foldsCount * FOLD_PX;
  const perMs = shownMs ? room / shownMs : 0;
  const places = new Map();
  const folds = [];
  let x = LEFT + 14;
  sorted.forEach((ms, at) => {
    if (at) {
      const gap = gaps[at - 1];
      if (gap > QUIET_MS) folds.push({ x, width: FOLD_PX, ms: gap });
      x += gap > QUIET_MS ? FOLD_PX : gap * perMs;
    }
    places.set(ms, x);
  });
  return { at: (ms) => places.get(ms), folds, sorted };
}

function folded({ x, width, ms }, height) {
  return [
    s("rect", { class: "fold", x: x + 6, y: TOP, width: width - 12, height: height - TOP - 26 }),
    s("text", { class: "fold-name", x: x + width / 2, y: height - 32, "text-anchor": "middle" }, `⋯ ${lasting(ms)}`),
  ];
}

function ticks(scale, points, height) {
  const start = scale.sorted[0];
  let last = -Infinity;
  const shown = [];
  for (const ms of scale.sorted) {
    const x = scale.at(ms);
    if (x - last < 70) continue;
    last = x;
    shown.push(s("line", { class: "tick", x1: x, x2: x, y1: TOP, y2: height - 24 }), s("text", { class: "tick-name", x, y: height - 8, "text-anchor": "middle" }, `+${lasting(ms - start)}`));
  }
  return shown;
}

// From the claim of a decision to its end; dashed where it has not ended.
function spans(points, scale, y) {
  const open = new Map();
  const lines = [];
  const line = (from, to, pending) => s("line", { class: pending ? "span pending" : "span", x1: scale.at(from.ms), x2: to, y1: y.get("done"), y2: y.get("done") });
  for (const point of points) {
    if (point.fact === "attempt_started") open.set(point.decision, point);
    else if (point.lane === "done" && open.has(point.decision)) {
      lines.push(line(open.get(point.decision), scale.at(point.ms), false));
      open.delete(point.decision);
    }
  }
  for (const point of open.values()) lines.push(line(point, WIDTH - 20, true));
  return lines;
}

function mark(point, x, y) {
  const kind = `mark ${point.lane}${BAD.has(point.fact) ? " bad" : ""}${point.mode === "shadow" ? " shadow" : ""}`;
  const title = s("title", {}, `${whole(point.ms)}, sequence ${point.seq}: ${point.name}, ${point.text}`);
  const shapes = {
    observed: () => s("path", { class: kind, d: `M${x - 7} ${y}h14M${x} ${y - 7}v14` }, title),
    inferred: () => s("path", { class: kind, d: `M${x} ${y - 8}L${x + 8} ${y}L${x} ${y + 8}L${x - 8} ${y}Z` }, title),
    decided: () => s("rect", { class: kind, x: x - 7, y: y - 7, width: 14, height: 14, rx: 3 }, title),
    operated: () => s("path", { class: kind, d: `M${x} ${y - 8}L${x + 8} ${y + 6}L${x - 8} ${y + 6}Z` }, title),
    done: () => s("circle", { class: kind, cx: x, cy: y, r: 7 }, title),
  };
  return shapes[point.lane]();
}

function labels(points, scale, y) {
  const last = new Map();
  return points.map((point) => {
    const x = scale.at(point.ms);
    const width = point.name.length * 6.4 + 16;
    const free = x >= (last.get(point.lane) ?? -Infinity) && x + width < WIDTH;
    if (!free) return null;
    last.set(point.lane, x + width);
    return s("text", { class: "mark-name", x: x - 7, y: y.get(point.lane) + 24 }, point.name);
  });
}

function listed(points, incident) {
  return h("ol", { class: "listed" }, points.map((point) => h("li", {},
    h("span", { class: "after" }, `+${lasting(Math.max(0, point.ms - incident.began_ms))}`),
    h("strong", { class: point.lane }, point.name), h("span", {}, point.text))));
}
