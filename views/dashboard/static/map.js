// The map of the cluster on a canvas: only what is in view is drawn, once a frame at most.

import { $, count, h, plural } from "./dom.js";
import { BY_LETTER, STATES, colours, drawCell, forgetColours } from "./health.js";
import { layOut, neighbour, nodeAt } from "./map_layout.js";
import { showNode } from "./node_panel.js";
import { on, state } from "./store.js";

const HEIGHTS = [[300, 420], [2000, 520], [Infinity, 640]]; // up to so many nodes: pixels
const PAD = 4; // marks on the smallest cells are larger than the cells
const scroll = $("map-scroll");
const canvas = $("map");
let layout = null;
let zoom = 0;
let cursor = 0;
let asked = false;

export function startMap() {
  $("legend").append(...STATES.map(legendItem));
  on(["all"], () => { layout = null; draw(); });
  on(["nodes"], draw);
  scroll.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(() => { layout = null; draw(); }).observe(scroll);
  canvas.addEventListener("click", onClick);
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("focus", () => { tell(); draw(); });
  canvas.addEventListener("blur", draw);
  canvas.addEventListener("mousemove", onMove);
  $("zoom-in").addEventListener("click", () => zoomBy(1));
  $("zoom-out").addEventListener("click", () => zoomBy(-1));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
}

export function recolour() {
  forgetColours();
  document.querySelectorAll("#legend canvas").forEach(drawLegend);
  draw();
}

export function nextUnwell() {
  const total = state.nodes.length;
  for (let step = 1; step <= total; step += 1) {
    const at = (cursor + step) % total;
    if (!isWell(state.nodes[at])) return focusNode(at);
  }
  return undefined;
}

function focusNode(at) {
  cursor = at;
  canvas.focus();
  reveal();
  tell();
  draw();
}

const isWell = (node) => node[3] === "." && /^\.*$/.test(node[2]);

function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    paint();
  });
}

function paint() {
  const width = scroll.clientWidth;
  if (!width || !state.nodes.length) return label();
  const height = HEIGHTS.find(([most]) => state.nodes.length <= most)[1];
  if (!layout) {
    layout = layOut(state.nodes, width - 2 * PAD, height - 2 * PAD, zoom);
    $("map-space").style.height = `${layout.height + 2 * PAD}px`;
    scroll.style.height = `${viewOf(height)}px`;
    $("zoom-in").disabled = !layout.canGrow;
    $("zoom-out").disabled = !layout.canShrink;
    label();
  }
  const viewHeight = viewOf(height);
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(viewHeight * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(viewHeight * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${viewHeight}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, PAD * ratio, (PAD - scroll.scrollTop) * ratio);
  context.clearRect(-PAD, scroll.scrollTop - PAD, width, viewHeight);
  paintLeaves(context);
  paintNodes(context, scroll.scrollTop, scroll.scrollTop + viewHeight);
  return undefined;
}

const viewOf = (height) => Math.min(layout.height + 2 * PAD, height);

function paintLeaves(context) {
  if (!layout.heading) return;
  const c = colours();
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  for (const block of layout.blocks) {
    const letter = state.leaves[block.name];
    context.fillStyle = letter ? c[letter] : c.dim;
    const words = (block.name || "nodes") + (letter ? ` ${letter}` : "");
    context.fillText(words, block.x, block.y + 1, Math.max(24, block.width));
  }
}

function paintNodes(context, top, bottom) {
  const { cell, tile, rects } = layout;
  const c = colours();
  const troubled = [];
  state.nodes.forEach((node, index) => {
    const rect = rects[index];
    if (!rect || rect.y + tile.height < top || rect.y > bottom) return;
    if (tile.names) {
      context.font = "10.5px ui-monospace, monospace";
      context.fillStyle = node[3] === "." ? c.dim : c[node[3]];
      const sign = node[3] === "." ? "" : ` ${node[3]}`;
      const width = tile.columns * (cell + tile.gap);
      context.fillText(shorten(context, node[0], width - context.measureText(sign).width) + sign, rect.x, rect.y);
    }
    const idle = node[5] !== "working";
    for (let gpu = 0; gpu < node[2].length; gpu += 1) {
      const letter = node[2][gpu];
      const x = rect.x + (gpu % tile.columns) * (cell + tile.gap);
      const y = rect.y + tile.names + Math.floor(gpu / tile.columns) * (cell + tile.gap);
      if (letter === "." || cell >= 6) drawCell(context, letter, x, y, cell, idle);
      else troubled.push([letter, x, y]);
    }
    if (!tile.names && node[3] !== ".") troubled.push([node[3], rect.x, rect.y]);
    if (index === cursor && document.activeElement === canvas) ring(context, rect, tile, c);
  });
  for (const [letter, x, y] of troubled) drawCell(context, letter, x - 3, y - 3, Math.max(8, cell), false);
}

function ring(context, rect, tile, c) {
  context.strokeStyle = c.focus;
  context.lineWidth = 2;
  const pad = layout.cell >= 6 ? 3 : 2;
  const gap = layout.cell >= 12 ? 14 : layout.cell >= 6 ? 6 : 3;
  context.strokeRect(rect.x - pad, rect.y - pad, tile.width - gap + 2 * pad, tile.height - gap + 2 * pad);
}

function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`…${kept}`).width > width) kept = kept.slice(1);
  return `…${kept}`;
}

function label() {
  const gpus = state.nodes.reduce((sum, node) => sum + node[2].length, 0);
  const bad = state.nodes.filter((node) => !isWell(node)).length;
  const words = state.nodes.length
    ? `${plural(state.nodes.length, "node", "nodes")}, ${plural(gpus, "GPU", "GPUs")}; ${bad ? `${count(bad)} not well` : "all well"}. Arrow keys move, n goes to the next that is not well, Enter shows it.`
    : "No node has said what it is made of yet.";
  canvas.setAttribute("aria-label", words);
  $("map-here").textContent = state.nodes.length ? "Arrow keys move over the nodes, n finds the next that is not well, Enter shows its parts." : words;
}

function tell() {
  const node = state.nodes[cursor];
  if (!node) return;
  $("map-here").textContent = sentence(node);
}

function sentence([name, leaf, gpus, rest, job, role]) {
  const bad = [...gpus].map((letter, at) => (letter === "." ? "" : `GPU ${at} ${BY_LETTER.get(letter).name}`)).filter(Boolean);
  const silent = gpus.length && [...gpus].every((letter) => letter === "S");
  const what = silent ? "silent" : bad.join(", ") || (rest === "." ? "all GPUs well" : "");
  const node = rest === "." || silent ? "" : `node ${BY_LETTER.get(rest).name}`;
  const place = [leaf, job ? `${job}, ${role}` : role || "no job"].filter(Boolean).join(", ");
  return `${name} (${place}): ${[node, what].filter(Boolean).join("; ")}`;
}

function onClick(event) {
  const at = hit(event);
  if (at < 0) return;
  cursor = at;
  tell();
  draw();
  showNode(state.nodes[at][0]);
}

function onMove(event) {
  const at = layout ? hit(event) : -1;
  canvas.title = at < 0 ? "" : sentence(state.nodes[at]);
}

function hit(event) {
  const box = canvas.getBoundingClientRect();
  return nodeAt(layout, event.clientX - box.left - PAD, event.clientY - box.top - PAD + scroll.scrollTop);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !layout) return;
  if (event.key.startsWith("Arrow")) {
    cursor = neighbour(layout, cursor, event.key);
    reveal();
    tell();
    draw();
  } else if (event.key === "Enter") showNode(state.nodes[cursor][0]);
  else if (event.key === "+" || event.key === "=") zoomBy(1);
  else if (event.key === "-") zoomBy(-1);
  else return;
  event.preventDefault();
}

function reveal() {
  const rect = layout?.rects[cursor];
  if (!rect) return;
  if (rect.y < scroll.scrollTop) scroll.scrollTop = rect.y - 20;
  else if (rect.y + layout.tile.height > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = rect.y + layout.tile.height - scroll.clientHeight + 8;
}

function zoomBy(step) {
  zoom = Math.max(0, zoom + step);
  layout = null;
  draw();
  requestAnimationFrame(() => { reveal(); draw(); });
}

function legendItem({ letter, name, says, idle }) {
  const glyph = h("canvas", { "aria-hidden": "true", "data-letter": letter, "data-idle": idle, width: 28, height: 28 });
  drawLegend(glyph);
  return h("li", { title: says }, glyph, `${name}`);
}

function drawLegend(glyph) {
  const context = glyph.getContext("2d");
  context.clearRect(0, 0, 28, 28);
  drawCell(context, glyph.dataset.letter, 3, 3, 22, "idle" in glyph.dataset);
}
