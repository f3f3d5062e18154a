// Tables over time as colours, on canvas: a row for each plane, link or path, a column per interval.

// spec(): {times {step, end, columns}, rows [{label, band}], height of a row, colours (row, column)
// -> [r, g, b], words (row, column) -> text}. Rows of one band stand together under its name.
function heatMap(host, name, spec) {
  const plot = host.appendChild(el("div", { class: "plot" }));
  const canvas = plot.appendChild(el("canvas", { role: "img", "aria-label": name }));
  const cursor = plot.appendChild(el("div", { class: "cursor" }));
  const top = 2, bottom = 26, gap = 17;
  let now_ = null, layout = null, labels = 84;

  function draw() {
    const width = plot.clientWidth;
    now_ = spec();
    if (!width || !now_) return;
    layout = place(now_.rows, now_.height, gap, top);
    const pen = canvas.getContext("2d");
    const font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    pen.font = font;
    labels = Math.max(84, ...layout.bands.map(({ band }) => pen.measureText(band ?? "").width + 6));
    const height = layout.bottom + bottom, room = width - labels - 8;
    const density = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
    canvas.style.height = `${height}px`;
    canvas.dataset.rows = now_.rows.length;
    canvas.dataset.columns = now_.times.columns;
    pen.scale(density, density);
    pen.imageSmoothingEnabled = false;
    pen.font = font;
    const image = paint(now_, layout);
    layout.room = room;
    layout.width = room * ((now_.times.columns * now_.times.step) / now_.times.end);
    pen.save();
    pen.beginPath();
    pen.rect(labels, 0, room, height);
    pen.clip();  // the last interval may be a short one
    for (const { first, count, y } of layout.bands) {
      pen.drawImage(image, 0, first, now_.times.columns, count, labels, y, layout.width, count * now_.height);
    }
    pen.restore();
    words(pen, now_, layout, labels, room, height);
    cursor.style.top = `${top}px`;
    cursor.style.height = `${layout.bottom - top}px`;
    moveCursor();
  }

  function moveCursor() {
    if (!layout || !now_ || !samples()) return;
    cursor.style.left = `${labels + (layout.room * Math.min(now(), now_.times.end)) / now_.times.end - 0.75}px`;
  }
  const timeAt = (px) => (clamp((px - labels) / layout.room, 0, 1) * now_.times.end);

  hover(canvas, (px, py) => {
    const row = layout ? rowAt(layout, now_.height, py) : -1;
    if (row < 0 || px < labels - 40 || px > labels + layout.room) return null;
    const column = clamp(Math.floor(timeAt(px) / now_.times.step), 0, now_.times.columns - 1);
    const from = column * now_.times.step, to = Math.min(from + now_.times.step, now_.times.end);
    const clock = timesOf(now_.times.end, now_.times.step);
    return `${now_.rows[row].name || now_.rows[row].label}\n${clock.number(from)} to ${clock.text(to)}\n${now_.words(row, column)}`;
  });
  canvas.addEventListener("click", (event) => {
    if (layout) goTo(timeAt(event.clientX - canvas.getBoundingClientRect().left));
  });
  when("time", moveCursor);
  when("run", draw);
  when("theme", draw);
  whenResized(plot, draw);
  return { draw };
}

// Bands of neighbouring rows with the same `band`, each under its name.
function place(rows, height, gap, top) {
  const bands = [];
  let y = top;
  rows.forEach((row, i) => {
    const last = bands.at(-1);
    if (last && last.band === row.band) {
      last.count++;
    } else {
      if (row.band) y += gap;
      bands.push({ band: row.band, first: i, count: 1, y });
    }
    y += height;
    if (!rows[i + 1] || rows[i + 1].band !== row.band) y += 4;
  });
  return { bands, bottom: y };
}
function rowAt({ bands }, height, py) {
  for (const { first, count, y } of bands) {
    if (py >= y && py < y + count * height) return first + Math.floor((py - y) / height);
  }
  return -1;
}

// One pixel a cell.
function paint({ rows, times, colours: colourOf }) {
  const small = el("canvas", { width: times.columns, height: rows.length });
  const pen = small.getContext("2d");
  const image = pen.createImageData(times.columns, rows.length);
  let at = 0;
  for (let row = 0; row < rows.length; row++) {
    for (let column = 0; column < times.columns; column++) {
      const [r, g, b] = colourOf(row, column);
      image.data[at++] = r;
      image.data[at++] = g;
      image.data[at++] = b;
      image.data[at++] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return small;
}

function words(pen, { rows, times, height }, layout, left, room, full) {
  pen.textBaseline = "middle";
  for (const { band, first, count, y } of layout.bands) {
    pen.fillStyle = css(colour("ink"));
    pen.textAlign = "left";
    if (band) pen.fillText(band, 0, y - 9);
    pen.fillStyle = css(colour("quiet"));
    pen.textAlign = "right";
    if (height >= 11) {
      for (let i = 0; i < count; i++) {
        pen.fillText(rows[first + i].label, left - 6, y + (i + 0.5) * height, left - 8);
      }
    }
  }
  pen.textBaseline = "top";
  pen.strokeStyle = css(colour("quiet"));
  for (const us of ticks(0, times.end, room / 85)) {
    const x = left + (room * us) / times.end;
    pen.beginPath();
    pen.moveTo(x, layout.bottom - 2);
    pen.lineTo(x, layout.bottom + 3);
    pen.stroke();
    const wide = pen.measureText(fmtTime(us)).width;
    pen.textAlign = "left";
    pen.fillText(fmtTime(us), clamp(x - wide / 2, left - 10, left + room - wide), layout.bottom + 6);
  }
}

// ---- load and loss

// What can be shown of planes and links. `code` is the byte, `ramp` its colours, `scale` the byte of
// the darkest colour.
const QUANTITIES = {
  load: { title: "load", ramp: "load", words: fmtShare },
  queue: { title: "queue", ramp: "load", words: fmtBytes },
  lost: { title: "lost packets", ramp: "loss", words: fmtPackets },
  trimmed: { title: "trimmed packets", ramp: "loss", words: fmtPackets },
  health: { title: "health", words: (state) => HEALTH[state] },
};
const HEALTH = ["up", "slow", "lossy", "silent switch", "down"];
const HEALTH_COLOURS = ["up", "slow", "lossy", "silent", "down"];

// The five tables of a set of rows.
function tablesOf(found) {
  const n = found.columns;
  return {
    load: shareTable(found.load, n), queue: countTable(found.queue, n), lost: countTable(found.lost, n),
    trimmed: countTable(found.trimmed, n), health: stateTable(found.health, n),
  };
}
// The byte of the last colour of a ramp: the most there is, but a little is not made to look a lot.
const darkest = (quantity, values) => Math.max(values.most, quantity === "load" ? 20 : 16);

function colouring(quantity, values) {
  if (quantity === "health") {
    const states = HEALTH_COLOURS.map(colour);
    return (row, column) => states[values.code(row, column)];
  }
  const most = darkest(quantity, values);
  const shades = ramp(QUANTITIES[quantity].ramp);
  // Anything above nothing is seen to be there.
  return (row, column) => {
    const code = values.code(row, column);
    return shades[code ? Math.max(24, Math.round((255 * code) / most)) : 0];
  };
}
function scaleOf(quantity, values) {
  if (quantity === "health") {
    return el("span", { class: "legend" }, ...HEALTH.map((name, i) =>
      el("span", {}, el("i", { style: `background:var(--${HEALTH_COLOURS[i]})` }), name)));
  }
  const { ramp: name, words: say } = QUANTITIES[quantity];
  const stops = [0, 1, 2, 3, 4].map((i) => `var(--${name}-${i})`).join(",");
  const most = values.value(darkest(quantity, values));
  return el("span", { class: "scale" }, "0", el("i", { style: `background:linear-gradient(90deg,${stops})` }),
    values.empty ? "nothing at any time" : say(most));
}

// A heat map with a choice of quantity above it. `rowsOf(found)` names the rows; `part` is "groups"
// or "links".
function loadMap(host, part, quantities, rowsOf, heightOf, tools) {
  const pick = el("select", { "aria-label": "quantity", id: `${part}-quantity` },
    ...quantities.map((key) => el("option", { value: key }, QUANTITIES[key].title)));
  const scale = el("span", {});
  host.append(el("div", { class: "tools" }, pick, ...(tools || []), scale));
  const cache = new Map();
  const found = () => {
    const sampled = samples();
    if (!sampled) return null;
    if (!cache.has(view.run)) cache.set(view.run, { ...tablesOf(sampled[part]), all: sampled[part] });
    return cache.get(view.run);
  };
  const map = heatMap(host, QUANTITIES.load.title, () => {
    const tables = found();
    if (!tables) return null;
    const values = tables[pick.value];
    const packed = tables.all[pick.value];
    values.value = (code) => (pick.value === "load" ? code / 200 : countOf(code) * (packed ? packed.unit || 1 : 1));
    scale.replaceChildren(scaleOf(pick.value, values));
    const rows = rowsOf(tables.all, tables);
    const shade = colouring(pick.value, values);
    return {
      times: tables.all, rows, height: heightOf(rows.length),
      colours: (row, column) => shade(rows[row].row, column),
      words: (row, column) => quantities.map((key) =>
        `${QUANTITIES[key].title}: ${QUANTITIES[key].words(tables[key](rows[row].row, column))}`).join("\n"),
    };
  });
  pick.addEventListener("change", map.draw);
  return map;
}

function hopName(row, down) {
  const low = DATA.sketch.rows[row].name.toUpperCase(), high = DATA.sketch.rows[row + 1].name.toUpperCase();
  return down ? `${high} → ${low}` : `${low} → ${high}`;
}

// In the order of a packet's way: up from the NICs, then down.
const hopOrder = ({ row, down }, i) => (down[i] ? 2 * DATA.sketch.rows.length - row[i] : row[i]);

function drawPlanes(host) {
  loadMap(host, "groups", ["load", "queue", "lost", "trimmed"], (found) => {
    const rows = found.plane.map((plane, row) => ({
      row, plane, label: `plane ${plane}`, band: hopName(found.row[row], found.down[row]),
      name: `plane ${plane}, ${hopName(found.row[row], found.down[row])}`,
      order: hopOrder(found, row) }));
    return rows.sort((a, b) => a.order - b.order || a.plane - b.plane);
  }, (n) => (n <= 24 ? 18 : n <= 48 ? 14 : 11));
  host.append(el("p", { class: "note" }, "All links of a plane between two tiers in one direction: mean load, ",
    "longest queue at the end of an interval, packets lost or trimmed in it. Click to go to a time."));
}

function drawLinks(host) {
  const sort = el("select", { "aria-label": "order of links", id: "links-order" },
    el("option", { value: "place" }, "by place"), el("option", { value: "loss" }, "by loss"),
    el("option", { value: "load" }, "by load"));
  const note = el("p", { class: "note" });
  const rowsOf = (found, tables) => {
    const rows = found.name.map((name, row) => ({
      row, name, label: name, band: `plane ${found.plane[row]}, ${hopName(found.row[row], found.down[row])}`,
      plane: found.plane[row], order: hopOrder(found, row), loss: found.total_lost[row] + found.total_trimmed[row] }));
    rows.sort((a, b) => a.plane - b.plane || a.order - b.order);
    if (sort.value !== "place") {
      const total = (row) => {
        let sum = 0;
        for (let c = 0; c < found.columns; c++) sum += tables.load(row, c);
        return sum;
      };
      for (const one of rows) one.key = sort.value === "loss" ? one.loss : total(one.row);
      rows.sort((a, b) => b.key - a.key);
      for (const one of rows) one.band = sort.value === "loss" ? "most losses first" : "most loaded first";
    }
    if (found.others) {
      rows.push({ row: found.name.length, label: "the others", name: `${found.others.toLocaleString("en")} other links together`,
        band: `${found.others.toLocaleString("en")} others together` });
    }
    const left = found.left_out ? ` ${found.left_out} with less to tell are left out.` : "";
    note.textContent = found.others
      ? `The ${found.name.length} directed links with the most losses, faults, queues and load.${left} The last row is `
        + `the mean load, the longest queue and all losses of the ${found.others.toLocaleString("en")} others.`
      : found.left_out ? `${found.name.length} of ${found.name.length + found.left_out} directed links.${left}`
        : `Every directed link, ${found.name.length} in all.`;
    return rows;
  };
  const map = loadMap(host, "links", ["load", "queue", "lost", "trimmed", "health"], rowsOf,
    (n) => (n <= 32 ? 12 : n <= 64 ? 7 : n <= 160 ? 3 : n <= 320 ? 2 : 1.25), [sort]);
  sort.addEventListener("change", map.draw);
  host.append(note);
}
