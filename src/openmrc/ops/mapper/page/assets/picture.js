"use strict";
// Canvases. The fabric of a plane without what is bad is drawn once and kept; what is bad is drawn
// over it, so a step of the slider costs as many strokes as there are bad links. Coloured by load,
// links of like load are one path.

function resolved(name) {  // light-dark() is no colour that a canvas takes
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

const LOADS = ["--load0", "--load1", "--load2", "--load3", "--load4"], FULL = 1000;
const PAINTS = ["--up", "--some", "--much", "--down", "--node", "--on-node", "--rule", "--accent", "--quiet", "--card", ...LOADS];
let paint = {};
function mix() { paint = Object.fromEntries(PAINTS.map(name => [name, resolved(name)])); }

const colourOf = rate => rate >= 0.99 ? "--down" : rate >= 0.1 ? "--much" : "--some";
const loadOf = share => LOADS[share === 0 ? 0 : Math.min(4, 1 + Math.floor(4 * share / FULL))];

function strokes(pen, layout, links) {
  pen.beginPath();
  for (const link of links) {
    const [x1, y1, x2, y2] = layout.ends(link);
    pen.moveTo(x1, y1); pen.lineTo(x2, y2);
  }
  pen.stroke();
}

// shares: of each directed link (`loads`), or null for one colour.
function ground(fabric, layout, links, shares) {
  const kept = document.createElement("canvas"), pen = sized(kept, layout.width, layout.height);
  const many = links.length;
  pen.lineWidth = many > 400 ? 0.5 : 1;
  if (shares) {
    const alike = new Map(LOADS.map(name => [name, []]));
    for (const link of links) alike.get(loadOf(Math.max(shares[2 * link], shares[2 * link + 1]))).push(link);
    for (const [name, those] of alike) { pen.strokeStyle = paint[name]; strokes(pen, layout, those); }
  } else {
    pen.strokeStyle = paint["--up"];
    pen.globalAlpha = many > 1200 ? 0.35 : many > 200 ? 0.6 : 1;
    strokes(pen, layout, links);
    pen.globalAlpha = 1;
  }
  fabric.tiers.forEach((n, tier) => row(pen, layout, tier, n));
  pen.fillStyle = paint["--node"];
  const size = layout.size(-1);
  for (let nic = 0; nic < fabric.nics; nic++) pen.fillRect(layout.x(-1, nic) - size / 2, layout.y(-1) - 2, size, 5);
  pen.fillStyle = paint["--quiet"];
  pen.font = "10px system-ui, sans-serif"; pen.textAlign = "left"; pen.textBaseline = "middle";
  for (let tier = -1; tier < fabric.tiers.length; tier++) pen.fillText(tier < 0 ? "NIC" : `T${tier}`, 8, layout.y(tier));
  return kept;
}

// The switches of a tier with their numbers: in their boxes, or as many as there is room for above.
function row(pen, layout, tier, n) {
  const size = layout.size(tier), y = layout.y(tier), digits = 6 * String(n - 1).length;
  const inside = size >= digits, step = inside ? 1 : Math.ceil((digits + 8) / Math.max(layout.x(tier, 1) - layout.x(tier, 0), 0.1));
  pen.font = "9px system-ui, sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle";
  pen.lineWidth = 3; pen.strokeStyle = paint["--card"];
  for (let i = 0; i < n; i++) {
    const x = layout.x(tier, i);
    pen.fillStyle = paint["--node"];
    pen.fillRect(x - size / 2, y - 6, size, 12);
    if (i % step) continue;
    if (!inside) pen.strokeText(i, x, y - 12);
    pen.fillStyle = paint[inside ? "--on-node" : "--quiet"];
    pen.fillText(i, x, inside ? y + 0.5 : y - 12);
  }
}

// bad: [[link, directions, rate], ...] of this plane, worst last; marked: links of what is chosen.
function drawPlane(canvas, kept, layout, bad, marked) {
  const pen = sized(canvas, layout.width, layout.height);
  pen.drawImage(kept, 0, 0, layout.width, layout.height);
  pen.lineCap = "round";
  if (marked.length) {
    pen.strokeStyle = paint["--accent"]; pen.globalAlpha = 0.35; pen.lineWidth = marked.length > 40 ? 2 : 7;
    strokes(pen, layout, marked);
    pen.globalAlpha = 1;
  }
  for (const [link, ways, rate] of bad) {
    const [x1, y1, x2, y2] = layout.ends(link);
    pen.strokeStyle = pen.fillStyle = paint[colourOf(rate)];
    pen.lineWidth = bad.length > 60 ? 1.2 : 2.4;
    pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke();
    if (ways !== (UP | DOWN) && bad.length <= 200) arrow(pen, ways === UP ? [x1, y1, x2, y2] : [x2, y2, x1, y1]);
  }
}

// Which way is bad: an arrow two thirds of the way along.
function arrow(pen, [x1, y1, x2, y2]) {
  const angle = Math.atan2(y2 - y1, x2 - x1), x = x1 + 0.66 * (x2 - x1), y = y1 + 0.66 * (y2 - y1);
  const size = Math.min(9, 0.4 * Math.hypot(x2 - x1, y2 - y1));
  pen.beginPath();
  pen.moveTo(x + size * Math.cos(angle), y + size * Math.sin(angle));
  for (const turn of [2.5, -2.5]) pen.lineTo(x + size * Math.cos(angle + turn), y + size * Math.sin(angle + turn));
  pen.fill();
}

// Bars of places over time, packed into as many rows as they need.
function drawTime(canvas, places, from, until, at, height) {
  const width = canvas.clientWidth || 300, pen = sized(canvas, width, height);
  const x = us => (us - from) / (until - from || 1) * width;
  const ends = [], rows = [];
  for (const place of places) {
    const a = x(place.since_us), b = Math.max(x(place.until_us ?? until), a + 2);
    let row = ends.findIndex(end => end < a - 1);
    if (row < 0) { row = ends.length; ends.push(0); }
    ends[row] = b;
    rows.push([row, a, b, place.rate]);
  }
  const step = Math.min(9, (height - 8) / Math.max(ends.length, 1));
  pen.strokeStyle = paint["--rule"]; pen.lineWidth = 1;
  pen.beginPath(); pen.moveTo(0, height - 1.5); pen.lineTo(width, height - 1.5); pen.stroke();
  for (const [row, a, b, rate] of rows) {
    pen.fillStyle = paint[colourOf(rate)];
    pen.fillRect(a, 3 + row * step, b - a, Math.max(step - 2, 1));
  }
  pen.strokeStyle = paint["--accent"]; pen.lineWidth = 1.5;
  pen.beginPath(); pen.moveTo(x(at), 0); pen.lineTo(x(at), height); pen.stroke();
}
