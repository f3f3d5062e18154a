"use strict";
const { fabrics, causes, did } = JSON.parse(document.getElementById("data").textContent);
let colours = {}; // looked up once for each picture
const css = (name) => colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue("--" + name);
const COLOURS = { nothing: "nothing", stalled: "stall", slower: "bandwidth", interrupted: "rollback" };
const TYPES = { at_s: Float64Array, lasts_s: Float32Array, stall_s: Float32Array, step_s: Float32Array,
  kind: Uint8Array, did: Uint8Array, nic: Int32Array, plane: Uint8Array };
const unpack = (text, type) => new type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const end = Math.max(...fabrics.map((f) => f.hours * 3600));
let from = 0, until = end;

const clock = (s) => {
  if (s >= end) return end > 86400 ? "the end" : new Date(end * 1000 - 1).toISOString().slice(11, 19);
  const day = Math.floor(s / 86400), t = new Date(Math.max(s, 0) * 1000).toISOString().slice(11, until - from < 60 ? 23 : 19);
  return end > 86400 ? `day ${day + 1}, ${t}` : t;
};
const length = (s) => s >= 5400 ? `${(s / 3600).toFixed(1)} h` : s >= 90 ? `${(s / 60).toFixed(1)} min`
  : s >= 0.1 ? `${s.toFixed(2)} s` : s >= 1e-4 ? `${(s * 1e3).toFixed(2)} ms` : `${(s * 1e6).toFixed(1)} us`;
const first = (at, s) => { // how many are before s
  let low = 0, high = at.length;
  while (low < high) { const middle = (low + high) >> 1; if (at[middle] < s) low = middle + 1; else high = middle; }
  return low;
};

function bars() {
  const here = document.getElementById("bars");
  const parts = { useful: "useful", ...causes };
  for (const f of fabrics) {
    const total = f.gpu_hours_lost.total / (1 - f.effective_share || 1);
    const share = (key) => key === "useful" ? f.effective_share : f.gpu_hours_lost[key] / total;
    here.insertAdjacentHTML("beforeend", `<h2></h2><div class="bar">` + Object.keys(parts).map((key) =>
      `<div title="${parts[key]} ${(100 * share(key)).toFixed(2)} %" style="width:${100 * share(key)}%;background:var(--${key})"></div>`).join("") + "</div>");
    here.lastElementChild.previousElementSibling.textContent = `${f.name}: ${(100 * f.effective_share).toFixed(1)} % effective`;
  }
  here.insertAdjacentHTML("beforeend", "<p>" + Object.keys(parts).map((key) =>
    `<span class="key"><i style="background:var(--${key})"></i>${parts[key]}</span>`).join("") + "</p>");
}

function draw(line) {
  const { canvas, t, outages } = line, ratio = devicePixelRatio || 1;
  const width = canvas.width = canvas.clientWidth * ratio, height = canvas.height = canvas.clientHeight * ratio;
  const g = canvas.getContext("2d"), floor = height * 0.72, scale = width / (until - from);
  g.fillStyle = css("useful"); g.fillRect(0, floor, width, height - floor);
  for (const [start, stop, cause] of outages) {
    if (stop < from || start > until) continue;
    g.fillStyle = css(cause); g.fillRect((start - from) * scale, floor, Math.max((stop - start) * scale, ratio), height - floor);
  }
  const column = 2 * ratio, n = Math.ceil(width / column), counts = did.map(() => new Float64Array(n));
  const last = first(t.at_s, until);
  for (let i = first(t.at_s, from); i < last; i++) counts[t.did[i]][Math.min(Math.floor((t.at_s[i] - from) * scale / column), n - 1)]++;
  let most = 1;
  for (let x = 0; x < n; x++) most = Math.max(most, did.reduce((sum, _, k) => sum + counts[k][x], 0));
  for (let x = 0; x < n; x++) {
    let y = floor;
    did.forEach((name, k) => {
      if (!counts[k][x]) return;
      const tall = Math.max(counts[k][x] / most * (floor - 4 * ratio), name === "interrupted" ? 6 * ratio : ratio);
      g.fillStyle = css(COLOURS[name]); g.fillRect(x * column, y - tall, column - 0.5, tall); y -= tall;
    });
  }
}

function list(line, at) {
  const near = (until - from) / line.canvas.clientWidth * 4, { t, name, kinds } = line;
  const start = first(t.at_s, at - near), stop = Math.min(first(t.at_s, at + near), start + 200);
  document.getElementById("what").textContent = `${name}, ${clock(at)}: ${stop - start} failures`;
  const table = document.getElementById("list");
  table.innerHTML = "<tr><th>when<th class=word>what<th>NIC<th>plane<th>lasts<th>stall<th>a step then<th class=word>it</tr>";
  const order = Array.from({ length: stop - start }, (_, i) => start + i).sort((a, b) => t.did[b] - t.did[a]);
  for (const i of order) {
    const row = table.insertRow();
    [clock(t.at_s[i]), kinds[t.kind[i]], t.nic[i], t.plane[i], length(t.lasts_s[i]), length(t.stall_s[i]),
      `${t.step_s[i].toPrecision(5)} s`, did[t.did[i]] === "nothing" ? "was not noticed" : did[t.did[i]]]
      .forEach((text) => { row.insertCell().textContent = text; });
    row.cells[1].className = row.cells[7].className = "word";
  }
}

function show() {
  document.getElementById("span").textContent = `${clock(from)} to ${clock(until)}: ${length(until - from)}`;
  colours = {};
  lines.forEach(draw);
}
function zoom(by, at = (from + until) / 2) {
  if (by === "all") { from = 0; until = end; return show(); }
  const span = Math.min(Math.max((until - from) * by, 0.01), end);
  const share = (at - from) / (until - from);
  from = Math.min(Math.max(at - span * share, 0), end - span); until = from + span; show();
}
function move(s) { const span = until - from; from = Math.min(Math.max(from + s, 0), end - span); until = from + span; show(); }

const lines = fabrics.map((f) => {
  const here = document.getElementById("lines");
  here.insertAdjacentHTML("beforeend", `<h2></h2><canvas></canvas>`);
  here.lastElementChild.previousElementSibling.textContent =
    `${f.name}: ${f.failures.toLocaleString("en")} failures, ${f.interruptions} interruptions, ${f.unnoticed.toLocaleString("en")} that nobody noticed`;
  const canvas = here.lastElementChild, t = {};
  for (const key in TYPES) t[key] = unpack(f.timeline[key], TYPES[key]);
  const line = { canvas, t, name: f.name, kinds: f.timeline.kinds, outages: f.timeline.outages };
  const when = (event) => from + (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth * (until - from);
  const down = new Map(); let moved = 0;
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, when(e)); }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => { down.set(e.pointerId, e.clientX); moved = 0; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    if (!down.has(e.pointerId)) return;
    const before = down.get(e.pointerId), others = [...down].filter(([id]) => id !== e.pointerId);
    moved += Math.abs(e.clientX - before); down.set(e.pointerId, e.clientX);
    if (others.length) {
      const other = others[0][1], now = Math.abs(e.clientX - other);
      if (now > 4) zoom(Math.abs(before - other) / now, when(e));
    } else move((before - e.clientX) / canvas.clientWidth * (until - from));
  });
  canvas.addEventListener("pointerup", (e) => { down.delete(e.pointerId); if (moved < 4) list(line, when(e)); });
  canvas.addEventListener("pointercancel", (e) => down.delete(e.pointerId));
  return line;
});
document.querySelectorAll("button").forEach((b) => b.addEventListener("click", () => zoom(b.dataset.by === "all" ? "all" : Number(b.dataset.by))));
addEventListener("resize", show);
bars(); show(); list(lines[0], (lines[0].outages[0] || [end / 2])[0]);
