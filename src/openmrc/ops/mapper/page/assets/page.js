"use strict";
// What the page shows at the slider's time; from the file itself, or again from a live controller.

let data = JSON.parse(get("data").textContent);
const slider = get("at"), STEPS = 1000, names = Names(data.fabric);
let canvases = [], kept = [], layout = null, timer = 0, pending = 0, drawn = null;
let at = null;  // the time shown; null: the end, which moves on a live page

const now = () => at ?? data.until_us;
const later = () => { pending = pending || requestAnimationFrame(draw); };

function show(us) {
  at = us === null || us >= data.until_us ? null : Math.max(us, data.from_us);
  slider.value = STEPS * (now() - data.from_us) / (data.until_us - data.from_us || 1);
  later();
}

function build() {
  const { planes } = data.fabric, room = get("planes"), wide = get("fabric").clientWidth - 30;
  const most = wide < 520 ? 1 : Math.max(2, Math.floor(wide / (planes > 8 ? 210 : 290)));
  const columns = Math.ceil(planes / Math.ceil(planes / most));  // rows alike
  room.style.setProperty("--columns", columns);
  layout = Layout(data.fabric, names, Math.max(240, (wide - 10 * (columns - 1)) / columns - 2));
  mix();
  canvases = Array.from({ length: planes }, (_, plane) => {
    const canvas = make("canvas", "", { plane });
    canvas.setAttribute("role", "img");
    canvas.addEventListener("pointermove", event => hover(canvas, event));
    canvas.addEventListener("pointerleave", () => { get("under").textContent = ""; });
    canvas.addEventListener("click", event => choose(near(canvas, event)));
    return canvas;
  });
  room.replaceChildren(...canvases.map(canvas => {
    const figure = make("figure");
    figure.append(make("figcaption", `plane ${canvas.plane}`), canvas);
    return figure;
  }));
  drawn = null;
  draw();
}

// The pictures without what is bad: anew for another width or colour, or another load.
function grounds(us) {
  const shares = get("colour").value === "load" ? sharesAt(us) : null;
  if (drawn !== null && drawn === (shares || "losses")) return;
  drawn = shares || "losses";
  kept = names.ofPlane.map(links => ground(data.fabric, layout, links, shares));
}

function draw() {
  pending = 0;
  const us = now(), places = active(us), byLoad = get("colour").value === "load";
  grounds(us);
  const bad = canvases.map(() => new Map()), marked = canvases.map(() => []);
  for (const place of places) for (const [link, ways] of place.links) {
    const found = bad[names.ends(link).plane], before = found.get(link);
    found.set(link, before ? [link, before[1] | ways, Math.max(before[2], place.rate)] : [link, ways, place.rate]);
  }
  for (const [link] of chosen ? linksOf(chosen) : []) marked[names.ends(link).plane].push(link);
  canvases.forEach((canvas, plane) => {
    const rows = [...bad[plane].values()].sort((a, b) => a[2] - b[2]);
    drawPlane(canvas, kept[plane], layout, byLoad ? [] : rows, marked[plane]);
    const figure = canvas.parentElement, worst = rows.length ? rows[rows.length - 1][2] : 0;
    figure.classList.toggle("bad", rows.length > 0);
    if (rows.length) figure.style.setProperty("--bad", `var(${colourOf(worst)})`);
    canvas.setAttribute("aria-label", `plane ${plane}: ${rows.length ? plural(rows.length, "bad link") : "all links well"}`);
    figure.firstChild.textContent = `plane ${plane}${rows.length ? ` · ${plural(rows.length, "bad link")}` : ""}`;
  });
  get("clock").textContent = clock(us);
  drawTime(get("line"), data.places, data.from_us, data.until_us, us, 64);
  list(places);
  state(places);
  if (chosen) past();
}

const health = places => places.length ? `var(${colourOf(Math.max(...places.map(p => p.rate)))})` : data.silent.length ? "var(--some)" : data.knows ? "var(--well)" : "var(--quiet)";

function state(places) {
  const words = places.length ? plural(places.length, "place") + (places.length === 1 ? " loses packets" : " lose packets")
    : data.knows ? "nothing is broken" : "nothing is known to be broken";
  get("state").textContent = data.silent.length ? `${words} · ${plural(data.silent.length, "silent agent")}` : words;
  get("state").style.setProperty("--state", health(places));
}

function facts() {
  const { nics, planes, tiers } = data.fabric, switches = planes * tiers.reduce((a, b) => a + b);
  get("facts").textContent = `${plural(nics, "NIC")}, ${plural(planes, "plane")}, ${plural(switches, "switch")}, ${plural(names.count, "link")}`;
  get("about").textContent = data.about;
  get("about").hidden = !data.about;
  get("now").textContent = data.live ? "live" : "end";
  get("colours").hidden = !data.loads;
}

function play() {
  if (timer) { clearInterval(timer); timer = 0; get("play").textContent = "▶"; return; }
  if (at === null) show(data.from_us);
  get("play").textContent = "❚❚";
  timer = setInterval(() => {
    show(now() + (data.until_us - data.from_us) * 4 / STEPS);
    if (at === null) play();
  }, 40);
}

const timeAt = share => data.from_us + share * (data.until_us - data.from_us);
slider.addEventListener("input", () => { at = Number(slider.value) === STEPS ? null : timeAt(slider.value / STEPS); later(); });
get("play").addEventListener("click", play);
get("now").addEventListener("click", () => show(null));
get("line").addEventListener("click", event => {
  const box = event.target.getBoundingClientRect();
  show(timeAt((event.clientX - box.left) / box.width));
});
get("order").addEventListener("change", lists);
get("colour").addEventListener("change", () => { document.body.dataset.colour = get("colour").value; later(); });
let width = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; build(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);

const listed = () => JSON.stringify([data.headline, data.places, data.notes, data.silent, data.denylist, data.jobs]);

async function again() {
  const answer = await fetch("page.json"), before = listed();
  if (!answer.ok) throw new Error(answer.status);
  data = await answer.json();
  show(at);
  if (listed() === before) return;  // nobody loses his place in a list
  lists();
  operator();
}

const start = /^#at=(0|1|0?\.\d+)$/.exec(location.hash);
if (start) at = Number(start[1]) === 1 ? null : timeAt(Number(start[1]));
facts();
lists();
operator();
build();
show(at);
if (data.live) {
  const events = new EventSource("events");
  events.onmessage = () => again().catch(() => {});
  events.onerror = () => { get("state").textContent = "the controller does not answer"; get("state").style.setProperty("--state", "var(--quiet)"); };
}
document.documentElement.dataset.ready = "yes";
