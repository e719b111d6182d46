// Where each node of the map lies: leaves side by side, nodes in a leaf, GPUs in a node.

const USED_MIN = 0.75;
const NAMED_MIN = 12; // smaller cells leave no room for the names of nodes
const SIZES = [20, 17, 15, 12, 10, 8, 6, 5, 4, 3, 2];

// `nodes`: rows of the document, sorted by leaf. `zoom`: steps larger (or smaller) than what fits.
export function layOut(nodes, width, height, zoom) {
  const leaves = byLeaf(nodes);
  const widest = Math.max(1, ...nodes.map((node) => node[2].length));
  let fits = SIZES.length - 1;
  for (let at = 0; at < SIZES.length; at += 1) {
    if (placed(leaves, widest, width, SIZES[at]).height <= height) {
      fits = at;
      break;
    }
  }
  fits = wider(fits, (at) => placed(leaves, widest, width, SIZES[at]).used / width);
  const at = Math.min(SIZES.length - 1, Math.max(0, fits - zoom));
  return { ...placed(leaves, widest, width, SIZES[at]), cell: SIZES[at], canGrow: at > 0, canShrink: at < fits };
}

// A little smaller, if that lets leaves lie side by side instead of leaving half of the map empty.
function wider(fits, usedAt) {
  if (usedAt(fits) >= USED_MIN) return fits;
  for (let at = fits + 1; SIZES[at] >= NAMED_MIN; at += 1) if (usedAt(at) >= USED_MIN) return at;
  return fits;
}

function byLeaf(nodes) {
  const leaves = [];
  nodes.forEach((node, index) => {
    const last = leaves[leaves.length - 1];
    if (last && last.name === node[1]) last.indexes.push(index);
    else leaves.push({ name: node[1], indexes: [index] });
  });
  return leaves;
}

function placed(leaves, widest, width, cell) {
  const gap = cell >= 12 ? 3 : cell >= 6 ? 2 : cell >= 4 ? 1 : 0;
  const columns = widest <= 4 ? widest : Math.ceil(widest / 2);
  const rows = Math.ceil(widest / columns);
  const names = cell >= NAMED_MIN ? 15 : 0;
  const nodeGap = cell >= 12 ? 14 : cell >= 6 ? 6 : 3;
  const tile = { width: columns * (cell + gap) - gap + nodeGap, height: rows * (cell + gap) - gap + nodeGap + names, names, columns, gap };
  const heading = cell >= 6 ? 18 : 0;
  const leafGap = cell >= 12 ? 18 : cell >= 6 ? 12 : 5;
  const rects = [];
  const blocks = [];
  let x = 0;
  let y = 0;
  let tallest = 0;
  for (const leaf of leaves) {
    const across = acrossOf(leaf.indexes.length, tile, leafGap, width + nodeGap);
    const down = Math.ceil(leaf.indexes.length / across);
    const block = { name: leaf.name, width: across * tile.width - nodeGap, height: heading + down * tile.height - nodeGap };
    if (x > 0 && x + block.width > width + 1) {
      x = 0;
      y += tallest + leafGap;
      tallest = 0;
    }
    blocks.push({ ...block, x, y });
    leaf.indexes.forEach((index, at) => {
      rects[index] = { x: x + (at % across) * tile.width, y: y + heading + Math.floor(at / across) * tile.height };
    });
    x += block.width + leafGap;
    tallest = Math.max(tallest, block.height);
  }
  const used = Math.max(0, ...blocks.map((block) => block.x + block.width));
  return { rects, blocks, tile, heading, used, height: y + tallest };
}

// A leaf is about three times as wide as high; then as many as fit side by side fill the width.
function acrossOf(nodesCount, tile, leafGap, width) {
  const most = Math.max(1, Math.floor(width / tile.width));
  if (nodesCount <= 4) return Math.min(most, nodesCount);
  const wanted = Math.min(most, Math.max(4, Math.ceil(Math.sqrt((nodesCount * 3 * tile.height) / tile.width))));
  const beside = Math.max(1, Math.floor((width + leafGap) / (wanted * tile.width + leafGap)));
  return Math.min(nodesCount, Math.max(1, Math.floor((width - (beside - 1) * leafGap) / beside / tile.width)));
}

export function nodeAt(layout, x, y) {
  const { width, height } = layout.tile;
  return layout.rects.findIndex((rect) => x >= rect.x && x < rect.x + width && y >= rect.y && y < rect.y + height);
}

// The nearest node in a direction of the arrow keys.
export function neighbour(layout, from, key) {
  const { rects } = layout;
  if (key === "ArrowRight") return Math.min(rects.length - 1, from + 1);
  if (key === "ArrowLeft") return Math.max(0, from - 1);
  const down = key === "ArrowDown";
  const here = rects[from];
  let best = from;
  let least = Infinity;
  rects.forEach((rect, index) => {
    const dy = down ? rect.y - here.y : here.y - rect.y;
    if (dy <= 0) return;
    const far = dy * 4 + Math.abs(rect.x - here.x);
    if (far < least) [least, best] = [far, index];
  });
  return best;
}
