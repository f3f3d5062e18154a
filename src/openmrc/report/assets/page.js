// The page: what is drawn where, the slider, the choice of transport, the theme, the address.

// ---- the paths of one QP

const STATES = ["good, in reserve", "good, in use", "skip", "plane gets no turn", "assumed bad", "denied"];
const STATE_COLOURS = ["backup", "in-use", "skip", "no-turn", "assumed-bad", "denied"];
// RoCEv2's QPs have a path each, and know nothing of its state.
const BUNDLE_STATES = { 1: "in use", 3: "no port is up" };

const stateNames = () => (samples() && samples().qp.bundle ? BUNDLE_STATES : STATES);
const many = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

function drawPaths(host) {
  const about = el("p", {}), legend = el("p", { class: "legend" });
  const note = el("p", { class: "note" });
  const explain = () => legend.replaceChildren(...Object.entries(stateNames()).map(([i, name]) =>
    el("span", {}, el("i", { style: `background:var(--${STATE_COLOURS[i]})` }), name)));
  host.append(about, legend);
  explain();
  when("run", explain);
  heatMap(host, "state of each path over time", () => {
    if (!samples()) return null;
    const qp = samples().qp, states = stateTable(qp.state, qp.columns), used = countTable(qp.used, qp.columns);
    const shades = STATE_COLOURS.map(colour);
    const columns = Object.values(qp.moves).flatMap((moves) => moves.slice(1).map(([c]) => c));
    const moved = [...new Set(columns)].sort((a, b) => a - b);
    const all = qp.ev.length + qp.left_out, noun = qp.bundle ? "QP" : "EV";
    about.textContent = `${qp.bundle ? "Messages" : `QP ${qp.qp},`} from nic ${qp.src} to nic ${qp.dst}, in`
      + ` ${DATA.runs[view.run].name}: ${many(all, noun)}`
      + (qp.bundle ? (all === 1 ? " on one hashed path." : ", each on one hashed path.") : ".");
    note.textContent = "The worst state of each interval. "
      + (qp.bundle ? "A row is the UDP source port of a QP, from which switches choose its path. " : "")
      + (qp.left_out ? `${many(qp.left_out, noun)} with less to tell are left out. ` : "")
      + (moved.length ? `${all === 1 ? "The path was" : "Paths were"} hashed anew at ${moved.slice(0, 8).map((c) => fmtTime(c * qp.step)).join(", ")}. ` : "")
      + "Another QP: qp = N under [report] in the scenario.";
    const nameAt = (row, column) => {
      const last = qp.moves[row] && qp.moves[row].filter(([c]) => c <= column).at(-1);
      return last ? last[1] : qp.name[row];
    };
    const n = qp.ev.length;
    return {
      times: qp, height: n <= 16 ? 14 : n <= 64 ? 6 : n <= 200 ? 2.5 : 2,
      rows: qp.ev.map((ev, row) => (qp.bundle
        ? { label: `port ${ev}`, band: moved.length ? "hashed paths" : `plane ${qp.plane[row]}` }
        : { label: `EV 0x${ev.toString(16)}`, band: moved.length ? "one hashed path" : `plane ${qp.plane[row]}` })),
      colours: (row, column) => shades[states.code(row, column)],
      words: (row, column) => `${nameAt(row, column)}\n${stateNames()[states(row, column)]}\n${fmtPackets(used(row, column))} sent`,
    };
  });
  host.append(note);
}

function drawQp(section) {
  const host = section.appendChild(el("div", { class: "curves" }));
  const title = section.querySelector("h2");
  const name = () => {
    title.textContent = samples() && samples().qp.bundle ? "Rate and queue of those QPs" : "Window and queue of that QP";
  };
  name();
  when("run", name);
  qpChart(host, "window and bytes in flight", { cwnd_bytes: () => (samples().qp.bundle ? "allowed in a round trip" : "window"),
    inflight_bytes: "bytes in flight" }, fmtBytes);
  qpChart(host, "mean queueing delay", { delay_us: "mean queueing delay" }, fmtTime);
  qpChart(host, "longest queue at the last hop", { queue_bytes: "longest queue at the last hop" }, fmtBytes);
}

// `names`: what each list of `samples().qp` is called. A transport without the first has no such chart.
function qpChart(curves, label, names, say) {
  const host = curves.appendChild(el("div", {}));
  const said = (name) => (typeof name === "function" ? name() : name);
  const series = Object.values(names).map((name, i) => ({ name: said(name), xs: [], ys: [], style: lineStyle(i, 1.8) }));
  const spec = { series, end: 1, label, axis: "", height: 165, cursor: true, marks: DATA.marks.us,
    markLabels: DATA.marks.label, y: (value) => (value ? say(value) : "0") };
  // A value is that of the end of its interval.
  spec.read = (one, us) => {
    const qp = samples().qp;
    return us > qp.end ? "over" : say(one.ys[clamp(Math.ceil(us / qp.step) - 1, 0, qp.columns - 1)]);
  };
  const legend = host.appendChild(el("p", { class: "legend" }));
  const take = () => {
    const qp = samples().qp;
    spec.end = qp.end;
    host.hidden = !qp[Object.keys(names)[0]];
    Object.entries(names).forEach(([key, name], i) => {
      series[i].name = said(name);
      series[i].xs = Array.from({ length: qp.columns }, (_, c) => Math.min((c + 1) * qp.step, qp.end));
      series[i].ys = qp[key] || Array(qp.columns).fill(0);
    });
  };
  const words = () => legend.replaceChildren(...series.map((one) =>
    el("span", {}, swatch(one.style), one.name, el("b", {}, spec.read(one, now())))));
  take();
  words();
  const chart = lineChart(host, spec);
  when("time", words);
  when("run", () => {
    take();
    words();
    chart.draw();
  });
}

// ---- slider, transport, faults, theme, address

function drawBar() {
  const slider = byId("time"), output = byId("now");
  const fit = () => {
    const edges = samples() && samples().edges;
    slider.disabled = !edges;
    if (!edges) return;
    slider.max = edges.columns - 1;
    slider.value = view.column;
    const clock = timesOf(edges.end, edges.step);
    output.textContent = `${clock.number(nowFrom())} to ${clock.text(nowTo())}`;
    slider.setAttribute("aria-valuetext", output.textContent);
  };
  slider.addEventListener("input", () => {
    view.column = Number(slider.value);
    changed("time");
  });
  when("time", fit);
  when("run", fit);
  if (DATA.runs.length > 1) byId("runs").append(...DATA.runs.map((run, i) => el("label", {},
    el("input", { type: "radio", name: "run", value: i, checked: i === view.run, onchange: () => show(i) }), run.name)));
  byId("bar").hidden = false;
  fit();
}

// Another transport, at the same time if it ran that long.
function show(run) {
  const us = samples() ? nowFrom() : 0;
  view.run = run;
  const edges = samples() && samples().edges;
  view.column = edges ? clamp(Math.floor(us / edges.step + 1e-9), 0, edges.columns - 1) : 0;
  const radio = document.querySelector(`#runs input[value="${run}"]`);
  if (radio) radio.checked = true;
  changed("run");
  changed("time");
}

function drawFaults(host) {
  const { us, label, more } = DATA.marks;
  if (!us.length) {
    host.append(el("p", {}, "None."));
    return;
  }
  host.append(el("ol", {}, ...us.map((at, i) => el("li", {},
    el("button", { type: "button", title: "go to this time", onclick: () => goTo(at) }, fmtTime(at)), label[i]))));
  if (more) host.append(el("p", { class: "note" }, `And ${more.toLocaleString("en")} more.`));
}

function drawTheme() {
  const button = byId("theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  const redraw = () => {
    colours = {};
    name();
    changed("theme");
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    redraw();
  });
  system.addEventListener("change", redraw);
  name();
}

// "#t=400us&run=1" or "#t=20ms": what is looked at is part of the address.
function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const run = Number(asked.get("run") || 0);
  if (Number.isInteger(run) && run >= 0 && run < DATA.runs.length && run !== view.run) show(run);
  const us = parseTime(asked.get("t"));
  if (Number.isFinite(us)) goTo(us);
}
function writeAddress() {
  if (!samples()) return;
  history.replaceState(null, "", `#t=${Number(nowFrom().toFixed(3))}us&run=${view.run}`);
}

function start() {
  drawTheme();
  drawSteps(byId("steps"));
  drawGoodput(byId("goodput"));
  drawCompletion(byId("fct"));
  const sampled = DATA.runs.findIndex((run) => run.samples);
  view.run = Math.max(sampled, 0);
  for (const section of document.querySelectorAll(".sampled")) section.hidden = sampled < 0;
  byId("unsampled").hidden = sampled >= 0;
  if (sampled >= 0) {
    drawBar();
    drawFabric(byId("fabric"));
    drawPlanes(byId("planes"));
    drawLinks(byId("links"));
    drawPaths(byId("paths"));
    drawQp(byId("qp"));
    if (DATA.marks.us.length) goTo(DATA.marks.us[0]);  // where there is something to see
    readAddress();
    addEventListener("hashchange", readAddress);
    let waiting = 0;
    const note = () => {  // not with every step of the slider: browsers refuse that
      clearTimeout(waiting);
      waiting = setTimeout(writeAddress, 300);
    };
    when("time", note);
    when("run", note);
  }
  drawFaults(byId("faults"));
  document.documentElement.dataset.ready = "yes";
}
start();
