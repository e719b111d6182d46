// The letters of the map: name, glyph and colour of each state. Never colour alone.

export const STATES = [
  { letter: "F", name: "at fault", says: "a verdict blames it" },
  { letter: "O", name: "out of work", says: "taken out by a recovery, waits for hands" },
  { letter: "P", name: "likely to fail", says: "a prediction stands" },
  { letter: "R", name: "rank at fault", says: "the program there; the hardware is innocent" },
  { letter: "S", name: "silent", says: "no sample for three periods" },
  { letter: ".", name: "well", says: "nothing is known against it" },
  { letter: ".", name: "well, idle", says: "works for no job now", idle: true },
];
export const BY_LETTER = new Map(STATES.filter((state) => !state.idle).map((state) => [state.letter, state]));

const NAMES = { F: "fault", O: "out", P: "predicted", R: "rank", S: "silent", ".": "well" };
let palette = null;

export function colours() {
  if (!palette) {
    // a canvas knows no variables: an element says what each one means in the scheme of now
    const probe = document.body.appendChild(document.createElement("i"));
    const read = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    palette = { ink: read("--ink"), dim: read("--dim"), line: read("--line"), card: read("--card"), focus: read("--focus"), idle: read("--state-idle") };
    for (const [letter, name] of Object.entries(NAMES)) palette[letter] = read(`--state-${name}`);
    probe.remove();
  }
  return palette;
}

export function forgetColours() {
  palette = null;
}

// A cell of the map: a filled square when well; each other state has a shape of its own.
export function drawCell(context, letter, x, y, size, idle) {
  const c = colours();
  const colour = letter === "." && idle ? c.idle : c[letter];
  context.fillStyle = colour;
  context.strokeStyle = colour;
  if (letter === "." || size < 6) {
    if (letter === "S") return outlined(context, x, y, size);
    const grow = letter === "." || letter === "S" ? 0 : Math.max(0, (6 - size) / 2);
    context.fillRect(x - grow, y - grow, size + 2 * grow, size + 2 * grow);
    return undefined;
  }
  const middle = size / 2;
  context.lineWidth = Math.max(1.5, size / 8);
  if (letter === "F") {
    context.fillRect(x, y, size, size);
    context.strokeStyle = c.card;
    stroke(context, [x + size * 0.28, y + size * 0.28, x + size * 0.72, y + size * 0.72], [x + size * 0.72, y + size * 0.28, x + size * 0.28, y + size * 0.72]);
  } else if (letter === "O") {
    outlined(context, x, y, size);
    stroke(context, [x + 1, y + size - 1, x + size - 1, y + 1]);
  } else if (letter === "P") {
    polygon(context, [x + middle, y], [x + size, y + size], [x, y + size]);
  } else if (letter === "R") {
    context.beginPath();
    context.arc(x + middle, y + middle, middle, 0, 2 * Math.PI);
    context.fill();
  } else {
    outlined(context, x, y, size);
  }
  return undefined;
}

function outlined(context, x, y, size) {
  const width = Math.max(1, size / 8);
  context.lineWidth = width;
  context.strokeRect(x + width / 2, y + width / 2, size - width, size - width);
}

function polygon(context, ...points) {
  context.beginPath();
  points.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
  context.fill();
}

function stroke(context, ...lines) {
  context.beginPath();
  for (const [x1, y1, x2, y2] of lines) {
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
  }
  context.stroke();
}
