// Curves over time, and distributions: SVG, redrawn to the width there is.

const COLOURS = 5;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4",
  "9 3 2 3 2 3", "2 7", "15 3 6 3", "4 7", "13 3 2 3 2 3 2 3"];
// The first ten differ without colour, the first 25 with it: when the dashes repeat, each colour
// takes the next one.
const dashOf = (i) => DASHES[(i + Math.floor(i / DASHES.length)) % DASHES.length] || "none";
const lineStyle = (i, width = 2) =>
  `stroke:var(--run-${i % COLOURS});stroke-width:${width};stroke-dasharray:${dashOf(i)}`;
const swatch = (style) =>
  svg("svg", { viewBox: "0 0 34 10" }, svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, style }));

// The last point at or before x, -1 if there is none.
function indexAt(xs, x) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// spec: series [{name, xs, ys, style}], end, log, step (values hold until the next point),
// y (words for a value), top, label (of the y axis), marks {us, label}, cursor (whether the slider's
// time is drawn), read (words for a series at x), height, ticks (pairs of x and text, if x is no
// time) and words (for x). Returns {draw}.
function lineChart(host, spec) {
  const plot = host.appendChild(el("div", { class: "plot" }));
  let scale = null, hair = null, cursor = null;

  function draw() {
    const width = plot.clientWidth, height = spec.height || 250;
    if (!width) return;
    const left = 62, right = 10, top = 12, bottom = 36;
    const start = spec.log ? spec.start : 0;
    const end = Math.max(spec.end, start * 1.0001, 1e-6);
    const most = spec.top || Math.max(...spec.series.flatMap((s) => s.ys), 0) * 1.06 || 1;
    const room = width - left - right;
    const x = spec.log
      ? (us) => left + (room * Math.log(us / start)) / Math.log(end / start)
      : (us) => left + (room * us) / end;
    const y = (value) => height - bottom - ((height - top - bottom) * value) / most;
    scale = {
      left, right: width - right,
      us: (px) => {
        const share = clamp((px - left) / room, 0, 1);
        return spec.log ? start * (end / start) ** share : share * end;
      },
      x,
    };
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
      "aria-label": spec.label });
    const times = spec.ticks || (spec.log ? logTicks(start, end) : ticks(0, end, room / 85)).map((us) => [us, fmtTime(us)]);
    for (const value of ticks(0, most, 4)) {
      root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
        svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, spec.y(value)));
    }
    for (const [us, words] of times) {
      const text = svg("text", { x: x(us), y: height - bottom + 17, "text-anchor": "middle" }, words);
      if (x(us) + 20 > width) text.setAttribute("text-anchor", "end");
      root.append(svg("line", { class: "axis", x1: x(us), x2: x(us), y1: height - bottom, y2: height - bottom + 4 }), text);
    }
    root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, spec.axis));
    for (const us of (spec.marks || []).filter((at) => at <= end)) {
      root.append(svg("line", { class: "mark", x1: x(us), x2: x(us), y1: top, y2: height - bottom }),
        svg("path", { class: "flag", d: `M${x(us) - 4} ${top - 8}h8l-4 7z` }));
    }
    for (const series of spec.series) {
      root.append(svg("path", { class: "curve", style: series.style, d: pathOf(series, x, y, spec.step) }));
    }
    hair = svg("line", { class: "hair", y1: top, y2: height - bottom, visibility: "hidden" });
    cursor = svg("line", { class: "now", y1: top, y2: height - bottom, visibility: "hidden" });
    root.append(hair, cursor);
    plot.replaceChildren(root);
    moveCursor();
  }

  function moveCursor() {
    if (!cursor || !spec.cursor || !samples()) return;
    const us = now();
    cursor.setAttribute("visibility", us <= spec.end ? "visible" : "hidden");
    cursor.setAttribute("x1", scale.x(us));
    cursor.setAttribute("x2", scale.x(us));
  }

  hover(plot, (px) => {
    if (!scale || px < scale.left - 8 || px > scale.right + 8) {
      if (hair) hair.setAttribute("visibility", "hidden");
      return null;
    }
    const us = scale.us(px);
    for (const end of ["x1", "x2"]) hair.setAttribute(end, scale.x(us));
    hair.setAttribute("visibility", "visible");
    const near = (spec.marks || []).map((at, i) => [Math.abs(scale.x(at) - px), i])
      .filter(([distance]) => distance < 5).slice(0, 6);
    return [(spec.words || fmtTime)(us), ...spec.series.map((s) => `${s.name}: ${spec.read(s, us)}`),
      ...near.map(([, i]) => `${fmtTime(spec.marks[i])}: ${spec.markLabels[i]}`)].join("\n");
  }, () => hair && hair.setAttribute("visibility", "hidden"));
  if (spec.cursor) {
    plot.addEventListener("click", (event) => {
      goTo(scale.us(event.clientX - plot.getBoundingClientRect().left));
    });
    when("time", moveCursor);
    when("run", moveCursor);
  }
  whenResized(plot, draw);
  return { draw };
}

function pathOf({ xs, ys }, x, y, step) {
  let d = "";
  for (let i = 0; i < xs.length; i++) {
    const px = x(xs[i]).toFixed(1), py = y(ys[i]).toFixed(1);
    d += i === 0 ? `M${px} ${py}` : step ? `H${px}V${py}` : `L${px} ${py}`;
  }
  return d;
}
function logTicks(low, high) {
  const found = [];
  const decades = Math.log10(high / low);
  const factors = decades < 1.2 ? [1, 2, 3, 5] : decades < 2.5 ? [1, 3] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

function drawGoodput(host) {
  const runs = DATA.runs;
  const legend = host.appendChild(el("p", { class: "legend" }));
  const read = ({ xs, ys }, us) => {
    const i = indexAt(xs, us);
    return i < 0 || i >= ys.length - 1 ? "0" : fmtRate(ys[i]);
  };
  const series = runs.map((run, i) => ({
    name: run.name, xs: run.goodput.us, ys: run.goodput.gbps, style: lineStyle(i) }));
  lineChart(host, {
    series, step: true, cursor: true, y: (value) => (value ? fmtRate(value) : "0"), read,
    end: Math.max(...runs.map((run) => run.goodput.us.at(-1)), 0), axis: "simulated time",
    label: "goodput of all flows over time", marks: DATA.marks.us, markLabels: DATA.marks.label });
  const words = () => legend.replaceChildren(...series.map((s) => el("span", {},
    swatch(s.style), s.name, samples() ? el("b", {}, read(s, now())) : null)));
  words();
  when("time", words);
  when("run", words);
  if (DATA.marks.us.length) {
    host.append(el("p", { class: "note" }, `Triangles mark faults; point at one to read it.${samples() ? " Bold figures are those of the slider's time." : ""}`));
  }
}

function drawCompletion(host) {
  const runs = DATA.runs.filter((run) => run.fct.us.length);
  if (!runs.length) {
    host.append(el("p", {}, "No flow completed."));
    return;
  }
  const low = Math.min(...runs.map((run) => run.fct.us[0])), high = Math.max(...runs.map((run) => run.fct.us.at(-1)));
  const style = (run) => lineStyle(DATA.runs.indexOf(run));
  const at = (run, share) => run.fct.us[run.fct.rank.findIndex((rank) => rank >= Math.max(1, Math.ceil(share * run.fct.rank.at(-1) - 1e-9)))];
  host.append(el("p", { class: "legend" }, ...runs.map((run) => el("span", {}, swatch(style(run)),
    run.name, el("b", {}, `p50 ${fmtTime(at(run, 0.5))}, p99 ${fmtTime(at(run, 0.99))}, p100 ${fmtTime(run.fct.us.at(-1))}`)))));
  const log = high > 20 * Math.max(low, 1e-6) && low > 0;
  lineChart(host, {
    series: runs.map((run) => ({
      name: run.name, style: style(run), run,
      xs: [run.fct.us[0], ...run.fct.us, high * 1.02], ys: [0, ...run.fct.rank, run.fct.rank.at(-1)].map((rank) => rank / run.fct.flows),
    })),
    step: true, top: 1.04, log, start: low * 0.95, end: high * 1.02, y: (share) => fmtShare(share),
    axis: log ? "completion time, logarithmic" : "completion time",
    label: "share of flows completed within a time",
    read: ({ run }, us) => {
      const i = indexAt(run.fct.us, us);
      return `${fmtShare(i < 0 ? 0 : run.fct.rank[i] / run.fct.flows)} of ${run.fct.flows.toLocaleString("en")} flows`;
    } });
  const open = DATA.runs.filter((run) => run.fct.us.length === 0 || run.fct.rank.at(-1) < run.fct.flows)
    .map((run) => `${run.name} (${(run.fct.flows - (run.fct.rank.at(-1) || 0)).toLocaleString("en")})`);
  if (open.length) host.append(el("p", { class: "note" }, `Flows that never completed: ${open.join(", ")}.`));
}
