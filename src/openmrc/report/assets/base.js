// What every picture needs: the data, elements, numbers with units, colours, the tooltip, and what
// the reader has chosen to look at. Times are microseconds throughout.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

// ---- elements

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// ---- numbers with units

// Four figures at most, no exponent, thousands apart.
function figure(value) {
  const size = Math.abs(value);
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}
function inUnits(value, units) {
  for (const [size, name] of units) if (Math.abs(value) >= size) return `${figure(value / size)} ${name}`;
  const [size, name] = units[units.length - 1];
  return `${figure(value / size)} ${name}`;
}
const TIMES = [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]];
// What a person writes for one: "420us", "20ms", "1.5 s"; a bare number is microseconds.
function parseTime(text) {
  const [, number, unit] = /^\s*(\d+\.?\d*)\s*(ns|us|µs|ms|s)?\s*$/.exec(text || "") || [];
  return number ? Number(number) * ({ ns: 1e-3, ms: 1e3, s: 1e6 }[unit] || 1) : NaN;
}
const fmtTime = (us) => (us === 0 ? "0 µs" : inUnits(us, TIMES));
const fmtRate = (gbps) => inUnits(gbps, [[1e3, "Tb/s"], [1, "Gb/s"], [1e-3, "Mb/s"]]);
const fmtBytes = (bytes) => inUnits(bytes, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
const fmtShare = (share) => `${figure(100 * share)} %`;
const fmtPackets = (n) => `${figure(n)} packet${n === 1 ? "" : "s"}`;

// A time to the precision of the interval it begins or ends, so that neighbours read differently.
function timesOf(endUs, stepUs) {
  const fits = ([unit]) => stepUs >= unit || endUs / unit > 99999;
  const [size, name] = TIMES.findLast(([unit]) => endUs / unit <= 99999 && stepUs / unit < 1000) || TIMES.find(fits);
  const digits = clamp(Math.ceil(-Math.log10(stepUs / size) - 1e-9), 0, 6);
  const number = (us) => (us / size).toLocaleString("en", {
    minimumFractionDigits: digits, maximumFractionDigits: digits });
  return { number, unit: name, text: (us) => `${number(us)} ${name}`, size };
}

// Round numbers from 0 or `low` to `high`, about `n` of them.
function ticks(low, high, n) {
  const rough = (high - low) / Math.max(n, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-9); k++) found.push(k * step);
  return found;
}

// ---- packed tables: see pack.py

function unpack(packed) {
  if (!packed) return null;
  const bytes = Uint8Array.from(atob(packed.bytes || packed.runs), (one) => one.charCodeAt(0));
  if (packed.bytes) return bytes;
  let n = 0;
  for (let i = 0; i < bytes.length; i += 2) n += bytes[i];
  const codes = new Uint8Array(n);
  n = 0;
  for (let i = 0; i < bytes.length; i += 2) codes.fill(bytes[i + 1], n, (n += bytes[i]));
  return codes;
}
const countOf = (code) => (code < 32 ? code : (16 + (code & 15)) * 2 ** ((code >> 4) - 1));
// A function (row, column) -> number, and `code` for the byte itself.
function table(packed, columns, value) {
  const codes = unpack(packed);
  const code = (row, column) => (codes ? codes[row * columns + column] : 0);
  const found = (row, column) => value(code(row, column));
  let most = 0;
  if (codes) for (const one of codes) most = Math.max(most, one);
  return Object.assign(found, { code, most, empty: !codes });
}
const shareTable = (packed, columns) => table(packed, columns, (code) => code / 200);
const stateTable = (packed, columns) => table(packed, columns, (code) => code);
const countTable = (packed, columns) =>
  table(packed, columns, (code) => countOf(code) * (packed ? packed.unit : 1));

// ---- colours: the style sheet has them, for light and for dark

const probe = document.body.appendChild(el("span", { hidden: true }));
let colours = {};
function colour(name) {
  if (!colours[name]) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  }
  return colours[name];
}
// 256 colours from five; `name` is "load" or "loss".
function ramp(name) {
  const stops = [0, 1, 2, 3, 4].map((i) => colour(`${name}-${i}`));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * 4, below = Math.min(Math.floor(at), 3);
    return stops[below].map((low, c) => Math.round(low + (stops[below + 1][c] - low) * (at - below)));
  });
}
const css = (rgb) => `rgb(${rgb.join(",")})`;

// ---- what is looked at

const view = { run: 0, column: 0 };
const watchers = { time: [], run: [], theme: [] };
const when = (what, act) => watchers[what].push(act);
const changed = (what) => watchers[what].forEach((act) => act());

const samples = () => DATA.runs[view.run].samples;
// The interval under the slider, and its middle.
const nowFrom = () => view.column * samples().edges.step;
const nowTo = () => Math.min(nowFrom() + samples().edges.step, samples().edges.end);
const now = () => (nowFrom() + nowTo()) / 2;
// The column of another table that holds the slider's time.
const columnOf = (times) => clamp(Math.floor(now() / times.step), 0, times.columns - 1);

function goTo(us) {
  if (!samples()) return;
  const column = clamp(Math.floor(us / samples().edges.step + 1e-9), 0, samples().edges.columns - 1);
  if (column === view.column) return;
  view.column = column;
  changed("time");
}

// Redraw when the room changes.
function whenResized(node, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.round(node.clientWidth) === width) return;
    width = Math.round(node.clientWidth);
    requestAnimationFrame(draw);  // what it draws may take room, which is another change
  }).observe(node);
}

// ---- the tooltip

const tip = byId("tip");
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 16 + width > innerWidth - 6;
  tip.style.left = `${clamp(right ? event.clientX - width - 14 : event.clientX + 16, 6, innerWidth - width - 6)}px`;
  tip.style.top = `${clamp(event.clientY + 18, 6, Math.max(6, innerHeight - height - 6))}px`;
}
const hideTip = () => { tip.hidden = true; };
// `read(x, y, event)` gives the words for a place in `node`, or null.
function hover(node, read, leave) {
  const show = (event) => {
    const box = node.getBoundingClientRect();
    const text = read(event.clientX - box.left, event.clientY - box.top, event);
    if (text) showTip(event, text); else hideTip();
  };
  node.addEventListener("pointermove", show);
  node.addEventListener("pointerdown", show);
  node.addEventListener("pointerleave", () => { hideTip(); if (leave) leave(); });
}
addEventListener("scroll", hideTip, { passive: true });
