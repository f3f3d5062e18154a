"use strict";
// What the page shows at the slider's time; from the file itself, or again from a live controller.

let data = JSON.parse(document.getElementById("data").textContent);
const get = id => document.getElementById(id);
const slider = get("at"), STEPS = 1000;
let chosen = -1, canvases = [], kept = [], layout = null, timer = 0, following = true, pending = 0;

const now = () => {
  const share = slider.value / STEPS;
  return following ? data.until_us : data.from_us + share * (data.until_us - data.from_us);
};
const percent = rate => rate >= 0.995 ? "lets nothing through" : `loses ${Number((100 * rate).toPrecision(2))} %`;
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

function clock(us) {
  if (data.unix) {
    const span = data.until_us - data.from_us, date = new Date(us / 1000);
    const time = date.toLocaleTimeString("en-GB") + (span < 6e7 ? "." + String(date.getMilliseconds()).padStart(3, "0") : "");
    return span > 864e8 ? `${date.toLocaleDateString("en-CA")} ${time}` : time;
  }
  if (us === 0) return "0";
  return us >= 1e6 ? `${(us / 1e6).toPrecision(4)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(4)} ms` : `${us.toPrecision(4)} µs`;
}

function lasted(us) {
  return us >= 36e8 ? `${(us / 36e8).toFixed(1)} h` : us >= 6e7 ? `${(us / 6e7).toFixed(1)} min`
    : us >= 1e6 ? `${(us / 1e6).toFixed(1)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(1)} ms` : `${us.toFixed(1)} µs`;
}

const active = us => data.places.filter(p => p.since_us <= us && (p.until_us === null || us < p.until_us));

function build() {
  const { planes } = data.fabric, room = get("planes");
  const wide = get("fabric").clientWidth - 30;
  const columns = wide < 520 ? 1 : Math.min(planes, wide > 1000 && planes > 4 ? 3 : 2);
  room.style.setProperty("--columns", columns);
  layout = Layout(data.fabric, Math.max(240, (wide - 10 * (columns - 1)) / columns - 2));
  mix();
  room.textContent = "";
  canvases = []; kept = [];
  for (let plane = 0; plane < planes; plane++) {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    caption.textContent = `plane ${plane}`;
    canvas.plane = plane;
    canvas.setAttribute("role", "img");
    canvas.addEventListener("pointermove", event => hover(canvas, event));
    canvas.addEventListener("pointerleave", () => { get("under").textContent = ""; });
    canvas.addEventListener("click", event => choose(near(canvas, event)));
    figure.append(caption, canvas);
    room.append(figure);
    canvases.push(canvas);
    kept.push(healthy(data.fabric, layout, plane));
  }
  draw();
}

function draw() {
  pending = 0;
  const us = now(), places = active(us);
  const bad = canvases.map(() => new Map());
  for (const place of places) for (const [link, ways] of place.links) {
    const found = bad[layout.planeOf(link)], before = found.get(link);
    if (!found) continue;
    found.set(link, before ? [link, before[1] | ways, Math.max(before[2], place.rate)] : [link, ways, place.rate]);
  }
  canvases.forEach((canvas, plane) => {
    const rows = [...bad[plane].values()].sort((a, b) => a[2] - b[2]);
    drawPlane(canvas, kept[plane], layout, rows, chosen);
    const figure = canvas.parentElement, worst = rows.length ? rows[rows.length - 1][2] : 0;
    figure.classList.toggle("bad", rows.length > 0);
    if (rows.length) figure.style.setProperty("--bad", `var(${colourOf(worst)})`);
    canvas.setAttribute("aria-label", `plane ${plane}: ${rows.length ? plural(rows.length, "bad link") : "all links well"}`);
    figure.firstChild.textContent = `plane ${plane}${rows.length ? ` · ${plural(rows.length, "bad link")}` : ""}`;
  });
  get("clock").textContent = clock(us);
  drawTime(get("line"), data.places, data.from_us, data.until_us, us, 64);
  list(places, us);
  state(places);
  if (chosen >= 0) past();
}

const later = () => { pending = pending || requestAnimationFrame(draw); };

function state(places) {
  const worst = Math.max(0, ...places.map(p => p.rate));
  const words = places.length ? plural(places.length, "place") + (places.length === 1 ? " loses packets" : " lose packets") : "nothing is broken";
  get("state").textContent = data.silent.length ? `${words} · ${plural(data.silent.length, "silent agent")}` : words;
  get("state").style.setProperty("--state", places.length ? `var(${colourOf(worst)})` : data.silent.length ? "var(--some)" : "#2f9e5b");
}

function item(place, us, tag) {
  const row = document.createElement(tag), name = document.createElement("b"), small = document.createElement("small");
  row.style.setProperty("--c", `var(${colourOf(place.rate)})`);
  name.textContent = place.place;
  const end = place.until_us === null ? "still" : `for ${lasted(place.until_us - place.since_us)}`;
  small.textContent = `${percent(place.rate)} · since ${clock(place.since_us)}, ${end} · ${place.lost.toLocaleString("en")} lost`
    + (place.note ? ` · ${place.note}` : "");
  row.append(name, small);
  if (place.until_us !== null && us >= place.until_us) row.classList.add("over");
  return row;
}

function list(places, us) {
  const room = get("places"), rows = places.sort((a, b) => b.rate - a.rate).slice(0, 200);
  room.textContent = "";
  for (const place of rows) {
    const li = document.createElement("li"), button = item(place, us, "button");
    button.type = "button";
    button.addEventListener("click", () => choose(place.links.length ? place.links[0][0] : -1));
    li.append(button);
    room.append(li);
  }
  if (!rows.length) {
    const li = document.createElement("li");
    li.className = "none";
    li.textContent = "None at this time.";
    room.append(li);
  }
}

function choose(link) {
  chosen = link;
  get("history").hidden = link < 0;
  later();
}

function past() {
  const mine = data.places.filter(place => place.links.some(([link]) => link === chosen));
  get("link").textContent = layout.name(chosen);
  drawTime(get("past"), mine, data.from_us, data.until_us, now(), 40);
  const lost = mine.reduce((sum, place) => sum + place.lost, 0);
  get("words").textContent = mine.length
    ? `Lost packets ${plural(mine.length, "time")}, ${lost.toLocaleString("en")} in all.`
    : "It has lost nothing that anybody saw.";
  const room = get("events");
  room.textContent = "";
  for (const place of mine.slice(-50).reverse()) room.append(item(place, Infinity, "li"));
}

function near(canvas, event) {
  const box = canvas.getBoundingClientRect(), scale = layout.width / box.width;
  return layout.at(canvas.plane, (event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
}

function hover(canvas, event) {
  const link = near(canvas, event);
  const place = link >= 0 && active(now()).find(p => p.links.some(([other]) => other === link));
  get("under").textContent = link < 0 ? "" : layout.name(link) + (place ? `: ${place.place} ${percent(place.rate)}` : ": well");
}

function jobs() {
  get("jobs").hidden = !data.jobs.length;
  const table = document.createElement("table"), columns = data.unix
    ? { nics: "NICs", sent: "packets", again: "packets sent again", set_aside: "paths avoided" }
    : { flows: "messages", unfinished: "unfinished", again: "packets sent again" };
  const heads = ["job", "from", "until", ...Object.values(columns)];
  const head = table.createTHead().insertRow();
  for (const text of heads) { const th = document.createElement("th"); th.scope = "col"; th.textContent = text; head.append(th); }
  const body = table.createTBody();
  for (const job of data.jobs) {
    const row = body.insertRow(), name = document.createElement("th");
    name.scope = "row"; name.textContent = job.name;
    row.append(name);
    const cells = [clock(job.from_us), job.until_us === null ? "-" : clock(job.until_us), ...Object.keys(columns).map(key => job[key])];
    cells.forEach((value, i) => {
      const cell = row.insertCell();
      cell.dataset.label = heads[i + 1];
      cell.textContent = typeof value === "number" ? value.toLocaleString("en") : value;
    });
    if (job.words) {
      const cell = body.insertRow().insertCell();
      cell.colSpan = heads.length; cell.className = "words"; cell.textContent = job.words;
    }
  }
  get("job-list").replaceChildren(table);
}

function facts() {
  const { nics, planes, t0s, t1s } = data.fabric, links = nics * planes + planes * t0s * t1s;
  get("facts").textContent = `${plural(nics, "NIC")}, ${plural(planes, "plane")}, ${plural(planes * (t0s + t1s), "switch").replace("switchs", "switches")}, ${plural(links, "link")}`;
  get("about").textContent = data.about;
  get("about").hidden = !data.about;
  get("now").textContent = data.live ? "live" : "end";
}

function play() {
  if (timer) { clearInterval(timer); timer = 0; get("play").textContent = "▶"; return; }
  if (following || slider.value >= STEPS) slider.value = 0;
  following = false;
  get("play").textContent = "❚❚";
  timer = setInterval(() => {
    slider.value = Number(slider.value) + 4;
    if (slider.value >= STEPS) play();
    later();
  }, 40);
}

slider.addEventListener("input", () => { following = Number(slider.value) === STEPS; later(); });
get("play").addEventListener("click", play);
get("now").addEventListener("click", () => { following = true; slider.value = STEPS; later(); });
get("close").addEventListener("click", () => choose(-1));
get("line").addEventListener("click", event => {
  const box = event.target.getBoundingClientRect();
  slider.value = STEPS * (event.clientX - box.left) / box.width;
  following = false;
  later();
});
let width = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; build(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);

async function again() {
  const answer = await fetch(`page.json${location.search}`);
  if (!answer.ok) throw new Error(answer.status);
  data = await answer.json();
  later();
}

const start = /^#at=(0|1|0?\.\d+)$/.exec(location.hash);
if (start) { slider.value = Math.round(STEPS * start[1]); following = Number(slider.value) === STEPS; }
facts();
jobs();
build();
if (data.live) {
  const events = new EventSource(`events${location.search}`);
  events.onmessage = () => again().catch(() => {});
  events.onerror = () => { get("state").textContent = "the controller does not answer"; get("state").style.setProperty("--state", "var(--quiet)"); };
}
document.documentElement.dataset.ready = "yes";
