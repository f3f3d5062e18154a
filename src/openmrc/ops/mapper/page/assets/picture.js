"use strict";
// Canvases. The healthy fabric of a plane is one path, drawn once and kept; what is bad is drawn
// over it, so a step of the slider costs as many strokes as there are bad links.

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

const PAINTS = ["--up", "--some", "--much", "--down", "--node", "--rule", "--accent", "--quiet"];
let paint = {};
function mix() { paint = Object.fromEntries(PAINTS.map(name => [name, resolved(name)])); }

const colourOf = rate => rate >= 0.99 ? "--down" : rate >= 0.1 ? "--much" : "--some";

function healthy(fabric, layout, plane) {
  const kept = document.createElement("canvas");
  const pen = sized(kept, layout.width, layout.height);
  const { nics, planes, t0s, t1s } = fabric, base = nics * planes;
  const many = t0s * t1s;
  pen.strokeStyle = paint["--up"];
  pen.globalAlpha = many > 600 ? 0.35 : many > 100 ? 0.6 : 1;
  pen.lineWidth = many > 200 ? 0.5 : 1;
  pen.beginPath();
  for (let i = 0; i < many; i++) {
    const [x1, y1, x2, y2] = layout.ends(base + plane * many + i);
    pen.moveTo(x1, y1); pen.lineTo(x2, y2);
  }
  for (let nic = 0; nic < nics; nic++) {
    const [x1, y1, x2, y2] = layout.ends(nic * planes + plane);
    pen.moveTo(x1, y1); pen.lineTo(x2, y2);
  }
  pen.stroke();
  pen.globalAlpha = 1;
  pen.fillStyle = paint["--node"];
  const box = (n, size) => Math.max(2, Math.min(size, 0.7 * layout.width / n));
  const spine = box(t1s, 13), leaf = box(t0s, 13), nicSize = box(nics, 5);
  for (let i = 0; i < t1s; i++) pen.fillRect(layout.spineX(i) - spine / 2, layout.spineY - 5, spine, 10);
  for (let i = 0; i < t0s; i++) pen.fillRect(layout.leafX(i) - leaf / 2, layout.leafY - 5, leaf, 10);
  for (let nic = 0; nic < nics; nic++) pen.fillRect(layout.nicX(nic) - nicSize / 2, layout.nicY - 2, nicSize, 5);
  pen.font = "10px system-ui, sans-serif";
  pen.fillStyle = paint["--quiet"];
  pen.textBaseline = "middle";
  // Where nodes leave room for words.
  if (layout.leafX(0) - leaf > 34) pen.fillText("T0", 8, layout.leafY);
  if (layout.spineX(0) - spine > 34) pen.fillText("T1", 8, layout.spineY);
  if (layout.nicX(0) - nicSize > 34) pen.fillText("NIC", 8, layout.nicY);
  return kept;
}

// bad: [[link, directions, rate], ...] of this plane; worst last.
function drawPlane(canvas, kept, layout, bad, chosen) {
  const pen = sized(canvas, layout.width, layout.height);
  pen.drawImage(kept, 0, 0, layout.width, layout.height);
  pen.lineCap = "round";
  for (const [link, ways, rate] of bad) {
    const [x1, y1, x2, y2] = layout.ends(link);
    pen.strokeStyle = pen.fillStyle = paint[colourOf(rate)];
    pen.lineWidth = bad.length > 60 ? 1.2 : 2.4;
    pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke();
    if (ways !== (UP | DOWN) && bad.length <= 200) arrow(pen, ways === UP ? [x1, y1, x2, y2] : [x2, y2, x1, y1]);
  }
  if (chosen >= 0 && layout.planeOf(chosen) === canvas.plane) {
    const [x1, y1, x2, y2] = layout.ends(chosen);
    pen.strokeStyle = paint["--accent"]; pen.lineWidth = 7; pen.globalAlpha = 0.3;
    pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke();
    pen.globalAlpha = 1;
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
  if (at !== null) {
    pen.strokeStyle = paint["--accent"]; pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(x(at), 0); pen.lineTo(x(at), height); pen.stroke();
  }
}
