// The fabric: one panel per plane, tiers as rows, links as lines, coloured by health or by load at
// the slider's time.

function drawFabric(host) {
  const sketch = DATA.sketch;
  const pick = el("select", { "aria-label": "colour of links", id: "fabric-colour" },
    el("option", { value: "health" }, "coloured by health"), el("option", { value: "load" }, "coloured by load"));
  const legend = el("span", { class: "legend" });
  const panels = el("div", { id: "panels" });
  const said = el("p", { class: "note", id: "fabric-said", "aria-live": "polite" });
  host.append(el("div", { class: "tools" }, pick, legend), panels, said);
  host.append(el("p", { class: "note" }, aboutSketch(sketch)));
  const widest = Math.max(...sketch.rows.map((row) => row.nodes));
  panels.classList.toggle("dense", sketch.plane.length / sketch.planes > 250);
  panels.style.gridTemplateColumns = `repeat(auto-fit, minmax(min(${clamp(widest * 2.5, 150, 640)}px, 100%), 1fr))`;

  const shown = Array.from({ length: sketch.planes }, (_, plane) => panel(panels, plane));
  let lines = [], nodes = [], drawn = "", lineNumber = new Map();
  const layout = () => {
    lines = [];
    nodes = [];
    drawn = "";
    for (const one of shown) layPanel(one, sketch, lines, nodes);
    lineNumber = new Map(lines.map(({ line, edge }) => [line, edge]));
    paintFabric();
  };
  const tables = new Map();
  const found = () => {
    const edges = samples().edges, n = edges.columns;
    if (!tables.has(view.run)) {
      tables.set(view.run, {
        up: shareTable(edges.up, n), down: shareTable(edges.down, n), health: stateTable(edges.health, n),
        unhealthy: countTable(edges.unhealthy, n), silent: countTable(edges.silent, n) });
    }
    return tables.get(view.run);
  };

  function paintFabric() {
    if (!samples()) return;
    const { up, down, health, unhealthy, silent } = found(), byLoad = pick.value === "load";
    const shades = byLoad ? ramp("load") : null, column = view.column;
    let broken = 0;
    const behind = [], before = [];  // what is not healthy is drawn last
    for (const { line, edge } of lines) {
      const state = health(edge, column);
      (state ? before : behind).push(line);
      broken += state ? unhealthy(edge, column) || 1 : 0;
      const load = Math.max(up(edge, column), down(edge, column));
      const name = byLoad ? "" : HEALTH_COLOURS[state];
      if (line.getAttribute("class") !== name) line.setAttribute("class", name);
      line.style.stroke = byLoad ? css(shades[Math.round(255 * load)]) : "";
      line.style.strokeWidth = byLoad ? 0.6 + 2.6 * load : "";
    }
    const order = `${before.length} ${before.map((line) => lineNumber.get(line)).join()}`;
    if (order !== drawn) for (const line of [...behind, ...before]) line.parentNode.append(line);
    drawn = order;
    let mute = 0;
    for (const { mark, number } of nodes) {
      const quiet = number >= 0 && silent(number, column) > 0;
      mute += quiet ? silent(number, column) : 0;
      mark.setAttribute("class", quiet ? "node silent" : "node");
    }
    legend.replaceChildren(...(byLoad ? [scaleOf("load", { most: 200, value: (code) => code / 200 })] : HEALTH.map((name, i) =>
      el("span", {}, keyLine(HEALTH_COLOURS[i]), name))));
    const silentWords = mute ? `, ${mute} silent switch${mute === 1 ? "" : "es"}` : "";
    said.textContent = `At ${timesOf(samples().edges.end, samples().edges.step).text(nowFrom())}: `
      + (broken ? `${broken.toLocaleString("en")} of ${total(sketch.links).toLocaleString("en")} links not healthy${silentWords}.` : "all links healthy.");
  }

  for (const one of shown) {
    hover(one.root, (px, py) => {
      const node = nearestNode(nodes, one.plane, px, py);
      if (node) {
        const quiet = node.number >= 0 ? found().silent(node.number, view.column) : 0;
        return nodeName(sketch, node.row, node.index, one.plane) + (quiet ? `\nsilent${sketch.rows[node.row].joined > 1 ? `: ${quiet}` : ""}` : "");
      }
      const line = nearestLine(lines, one.plane, px, py);
      return line ? lineWords(sketch, line.edge, found()) : null;
    });
  }
  pick.addEventListener("change", paintFabric);
  for (const what of ["time", "run", "theme"]) when(what, paintFabric);
  whenResized(panels, layout);
}

const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
const keyLine = (name) =>
  svg("svg", { viewBox: "0 0 34 10" }, svg("line", { class: name, x1: 0, x2: 34, y1: 5, y2: 5 }));

function aboutSketch({ rows, links, planes }) {
  const exact = rows.every((row) => row.joined === 1);
  const built = rows.map((row) => `${row.members.toLocaleString("en")} ${row.name.toUpperCase()}${row.members === 1 ? "" : "s"}`);
  const size = `${planes === 1 ? "One plane" : `${planes} planes`} of ${built.slice(1).join(" and ")} over ${built[0]}, from top to bottom.`;
  if (exact) return `${size} Each line is one link, both directions.`;
  const joined = rows.filter((row) => row.joined > 1).map((row) => `${row.joined} ${row.name.toUpperCase()}s`);
  return `${size} Too large to draw whole: a node stands for up to ${joined.join(" or ")}, a line for `
    + `up to ${Math.max(...links).toLocaleString("en")} links, in the colour of the worst of them.`;
}

function panel(host, plane) {
  const root = svg("svg", { role: "img", "aria-label": `plane ${plane}` });
  host.append(el("figure", {}, el("figcaption", {}, DATA.sketch.planes > 1 ? `plane ${plane}` : ""), root));
  return { root, plane };
}

function layPanel({ root, plane }, sketch, lines, nodes) {
  const width = root.parentNode.clientWidth, tall = sketch.rows.length;
  const height = clamp(width * 0.2 * (tall - 1), 46 * (tall - 1), 90 * (tall - 1)) + 30;
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.setAttribute("height", height);
  const label = 24;
  const x = (row, i) => label + ((i + 0.5) * (width - label)) / sketch.rows[row].nodes;
  const y = (row) => height - 14 - (row * (height - 28)) / (tall - 1);
  const edges = svg("g", {}), marks = svg("g", {}), texts = svg("g", {});
  sketch.plane.forEach((p, edge) => {
    if (p !== plane) return;
    const row = sketch.row[edge];
    const at = { x1: x(row, sketch.lower[edge]), y1: y(row), x2: x(row + 1, sketch.upper[edge]), y2: y(row + 1) };
    const line = edges.appendChild(svg("line", at));
    lines.push({ line, edge, plane, ...at });
  });
  const perPlane = total(sketch.rows.slice(1).map((row) => row.nodes));
  let before = 0;
  sketch.rows.forEach((row, r) => {
    const radius = clamp(((width - label) / row.nodes) * 0.36, 1.4, r ? 6 : 4);
    for (let i = 0; i < row.nodes; i++) {
      const place = { cx: x(r, i), cy: y(r) };
      const mark = marks.appendChild(r === 0
        ? svg("rect", { x: place.cx - radius, y: place.cy - radius, width: 2 * radius, height: 2 * radius })
        : svg("circle", { ...place, r: radius }));
      nodes.push({ mark, plane, row: r, index: i, radius, ...place, number: r ? plane * perPlane + before + i : -1 });
    }
    texts.append(svg("text", { x: 0, y: y(r) + 4 }, row.name === "nic" ? "NIC" : row.name.toUpperCase()));
    if (r) before += row.nodes;
  });
  root.replaceChildren(edges, marks, texts);
}

function nearestNode(nodes, plane, px, py) {
  return nodes.find((node) => node.plane === plane
    && Math.hypot(node.cx - px, node.cy - py) <= Math.max(node.radius + 1, 4));
}
function nearestLine(lines, plane, px, py) {
  let best = null, least = 7;
  for (const line of lines) {
    if (line.plane !== plane) continue;
    const dx = line.x2 - line.x1, dy = line.y2 - line.y1;
    const along = clamp(((px - line.x1) * dx + (py - line.y1) * dy) / (dx * dx + dy * dy), 0, 1);
    const distance = Math.hypot(line.x1 + along * dx - px, line.y1 + along * dy - py);
    if (distance < least) [best, least] = [line, distance];
  }
  return best;
}

function nodeName(sketch, row, index, plane) {
  const { name, joined, members } = sketch.rows[row];
  const first = index * joined, last = Math.min(first + joined, members) - 1;
  const number = first === last ? `${first}` : `${first} to ${last}`;
  return row === 0 ? `${name} ${number}` : `plane ${plane} ${name} ${number}`;
}
function lineWords(sketch, edge, { up, down, health, unhealthy }) {
  const row = sketch.row[edge], plane = sketch.plane[edge], column = view.column;
  const name = row === 0
    ? `${nodeName(sketch, 0, sketch.lower[edge], plane)} - ${nodeName(sketch, 1, sketch.upper[edge], plane)}`
    : `${nodeName(sketch, row, sketch.lower[edge], plane)} - ${nodeName(sketch, row + 1, sketch.upper[edge], plane).replace(/^plane \d+ /, "")}`;
  const state = health(edge, column), many = sketch.links[edge] > 1;
  const words = many
    ? `${sketch.links[edge].toLocaleString("en")} links: ${state ? `${unhealthy(edge, column)} not healthy, the worst ${HEALTH[state]}` : "all up"}`
    : HEALTH[state];
  return `${name}\n${words}\n${many ? "mean load" : "load"}: ${fmtShare(up(edge, column))} up, ${fmtShare(down(edge, column))} down`;
}
