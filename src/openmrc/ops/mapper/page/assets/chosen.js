"use strict";
// The chosen place: its state, what it carried, what befell it; and how it is found by its name.

let chosen = "";

const linksOf = name => (data.places.find(place => place.place === name) || { links: names.links(name) }).links;

function choose(name) {
  chosen = name;
  get("history").hidden = !name;
  get("said").textContent = "";
  later();
  operator();
  if (!name) return;
  past();
  get("history").scrollIntoView({ block: "nearest" });
}

// Places that have a link with it in common, in one of its directions.
function meeting(links, places) {
  const ways = new Map(links);
  return places.filter(place => place.links.some(([link, way]) => ways.get(link) & way));
}

// What was sent by a switch, or upwards, and the other way: the directed links of `loads`.
function directed(name, links) {
  const node = names.switchOf(name), out = [], back = [];
  for (const [link, ways] of links) {
    const { tier, lower } = names.ends(link);
    const isUp = !node || (tier === Number(node[1]) && lower === Number(node[2]));
    if (ways & UP) (isUp ? out : back).push(2 * link);
    if (ways & DOWN) (isUp ? back : out).push(2 * link + 1);
  }
  return [[node ? "sent by it" : "upwards", out], [node ? "sent to it" : "downwards", back]].filter(([, of]) => of.length);
}

// The shares of all directed links at a time.
const sharesAt = us => data.loads.share[data.loads.ends_us.slice(0, -1).filter(end => end < us).length];

function loadWords(name, links, us) {
  if (!data.loads) return "";
  const shares = sharesAt(us);
  return "load " + directed(name, links).map(([way, of]) =>
    `${(of.reduce((sum, at) => sum + shares[at], 0) / of.length / FULL * 100).toFixed(0)} % ${way}`).join(", ");
}

function stateWords(name, links, us) {
  const met = meeting(links, active(us));
  if (!met.length) return "well";
  const worst = met.reduce((a, b) => b.rate > a.rate ? b : a);
  const hurt = new Set(met.flatMap(place => place.links.map(([link]) => link)));
  const some = links.length > 1 ? `${count(links.filter(([link]) => hurt.has(link)).length)} of ${plural(links.length, "link")} bad, ` : "";
  return `${some}${worst.place === name ? "" : `${worst.place} `}${percent(worst.rate)}`;
}

function past() {
  const links = linksOf(chosen), mine = meeting(links, data.places), us = now();
  get("link").textContent = chosen;
  drawTime(get("past"), mine, data.from_us, data.until_us, us, 40);
  const lost = mine.reduce((sum, place) => sum + place.lost, 0), times = mine.reduce((sum, place) => sum + place.times, 0);
  get("words").textContent = `Now ${stateWords(chosen, links, us)}. ` + (mine.length
    ? `Lost packets ${plural(times, "time")}, ${count(lost)} in all.` : "It has lost nothing that anybody saw.");
  carried(links, us);
  const notes = (data.notes || []).filter(note => note.place === chosen).map(note => make("span", `${note.who} ${told(note)}`));
  fill(get("events"), [...notes.reverse(), ...mine.slice(-50).reverse().map(place => described(place, "div"))], "No incident.");
}

function carried(links, us) {
  if (!data.loads) {
    get("carried").replaceChildren(make("p", data.unix ? "A controller knows probes alone: not what links carry."
      : "What links carried was not counted in this run.", { className: "quiet" }));
    return;
  }
  const table = make("table"), ways = directed(chosen, links), shares = sharesAt(us);
  table.insertRow().append(make("td"), ...ways.map(([way]) => make("th", way, { scope: "col" })));
  const line = (words, cells) => table.insertRow().append(make("th", words, { scope: "row" }), ...cells.map(text => make("td", text)));
  line("load now", ways.map(([, of]) => `${(of.reduce((sum, at) => sum + shares[at], 0) / of.length / FULL * 100).toFixed(0)} %`));
  for (const [words, values] of Object.entries(data.loads.totals))
    line(words, ways.map(([, of]) => count(of.reduce((sum, at) => sum + values[at], 0))));
  get("carried").replaceChildren(table, make("p", `Load is a share ${data.loads.of}; the rest is of the whole run.`, { className: "quiet" }));
}

function near(canvas, event) {
  const box = canvas.getBoundingClientRect(), scale = layout.width / box.width;
  return layout.at(canvas.plane, (event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
}

function hover(canvas, event) {
  const name = near(canvas, event), links = names.links(name), load = name && loadWords(name, links, now());
  get("under").textContent = name && `${name}: ${stateWords(name, links, now())}${load ? ` · ${load}` : ""}`;
}

function search() {
  const words = get("find").value, known = data.places.map(place => place.place);
  const found = [...new Set([...known.filter(name => words.trim() && name.includes(words.trim().toLowerCase())), ...names.like(words, 12)])];
  get("found").hidden = !words.trim();
  fill(get("found"), found.slice(0, 12).map(name => chooser(name)), "No place has this name.");
  return found;
}

function find(name) {
  get("find").value = "";
  get("found").hidden = true;
  choose(name);
  const [first] = linksOf(name);
  if (first && window.innerWidth > 900) canvases[names.ends(first[0]).plane].scrollIntoView({ block: "nearest" });
}

get("find").addEventListener("input", search);
get("find").addEventListener("keydown", event => {
  if (event.key === "Enter") { const [first] = search(); if (first) find(first); }
  if (event.key === "Escape") { event.target.value = ""; search(); }
});
get("found").addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button) find(button.textContent);
});
get("close").addEventListener("click", () => choose(""));
