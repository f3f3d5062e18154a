"use strict";
// Places in lists: what loses packets now, what did in the past, silent agents, jobs, what to do.

const active = us => data.places.filter(p => p.since_us <= us && (p.until_us === null || us < p.until_us));
const until = place => place.until_us ?? data.until_us;

// A place that broke again and again is one incident, with its times.
function incidents() {
  const by = new Map();
  for (const place of data.places) if (!place.withdrawn) {
    const one = by.get(place.place) || { name: place.place, spans: [], times: 0, lost: 0, rate: 0, harm: 0 };
    one.spans.push(place);
    one.times += place.times; one.lost += place.lost;
    one.rate = Math.max(one.rate, place.rate);
    one.harm += place.rate * (until(place) - place.since_us);
    by.set(place.place, one);
  }
  const found = [...by.values()];
  for (const one of found) {
    one.spans.sort((a, b) => a.since_us - b.since_us);
    one.last = one.spans[one.spans.length - 1];
    one.open = one.spans.some(span => span.until_us === null);
  }
  return get("order").value === "time" ? found.sort((a, b) => b.last.since_us - a.last.since_us)
    : found.sort((a, b) => b.open - a.open || b.harm - a.harm);
}

const done = (name, since) => (data.notes || []).filter(note => note.place === name && note.at_us >= since).at(-1);
const told = note => `${note.what} ${clock(note.at_us)}${note.text ? `: ${note.text}` : ""}`;

function when(place) {
  if (place.until_us === null) return `since ${clock(place.since_us)}, still`;
  return `since ${clock(place.since_us)}, for ${lasted(place.until_us - place.since_us)}`;
}

function described(place, tag) {
  const element = make(tag), note = done(place.place, place.since_us);
  element.style.setProperty("--c", `var(${colourOf(place.rate)})`);
  const words = [percent(place.rate), when(place), ...(place.times > 1 ? [`${place.times} times`] : []), `${count(place.lost)} lost`];
  element.append(make("b", place.place), make("small", [...words, ...(place.note ? [place.note] : [])].join(" · ")));
  if (note) element.append(make("small", told(note)));
  return element;
}

function incident(one) {
  const button = make("button", "", { type: "button" }), { spans, last } = one;
  button.style.setProperty("--c", `var(${colourOf(one.rate)})`);
  const span = one.times > 1 ? `${one.times} times from ${clock(spans[0].since_us)} ${one.open ? "on, still" : `to ${clock(last.until_us)}`}` : when(last);
  button.append(make("b", one.name), make("small", `${percent(one.rate)} · ${span} · ${count(one.lost)} lost${last.note ? ` · ${last.note}` : ""}`));
  const note = done(one.name, last.since_us);
  if (note) button.append(make("small", told(note)));
  // The picture shows it as it was: at the middle of its last time.
  button.addEventListener("click", () => { show(one.open ? null : (last.since_us + until(last)) / 2); choose(one.name); });
  return button;
}

function chooser(name, words = "") {
  const button = make("button", "", { type: "button" });
  button.append(make("b", name), ...(words ? [make("small", words)] : []));
  button.addEventListener("click", () => choose(name));
  return button;
}

const LISTED = 200;
function fill(room, elements, none) {
  const items = elements.slice(0, LISTED).map(element => {
    const li = make("li");
    li.append(element);
    return li;
  });
  if (elements.length > LISTED) items.push(make("li", `and ${count(elements.length - LISTED)} more`, { className: "none" }));
  if (!items.length) items.push(make("li", none, { className: "none" }));
  room.replaceChildren(...items);
}

function list(places) {
  fill(get("places"), places.sort((a, b) => b.rate - a.rate).map(place => {
    const button = described(place, "button");
    button.type = "button";
    button.addEventListener("click", () => choose(place.place));
    return button;
  }), "None at this time.");
}

function headline() {
  const { headline: said } = data;
  get("headline").hidden = !said;
  if (!said) return;
  get("broken").textContent = said.state;
  get("headline").style.setProperty("--state", health(active(data.until_us)));
  const to_do = said.to_do.filter(([, what]) => !what.startsWith("nothing"));  // it works again: an incident
  get("do").replaceChildren(...to_do.map(([place, what]) => {
    const li = make("li");
    li.append(names.links(place).length || data.places.some(p => p.place === place) ? chooser(place, what) : make("span", place ? `${place}: ${what}` : what));
    return li;
  }));
  get("cost").textContent = said.cost || "";
}

function lists() {
  headline();
  const found = incidents();
  fill(get("incidents"), found.map(incident), "None.");
  get("incidents-title").textContent = found.length ? `Incidents (${count(found.length)})` : "Incidents";
  get("agents").hidden = !data.silent.length;
  fill(get("silent"), data.silent.map(nic => chooser(`nic ${nic}`)), "");
  jobs();
}

function jobs() {
  get("jobs").hidden = !data.jobs.length;
  const table = make("table"), columns = data.unix
    ? { nics: "NICs", sent: "packets", again: "packets sent again", set_aside: "paths avoided" }
    : { flows: "messages", unfinished: "unfinished", again: "packets sent again" };
  const heads = ["job", "from", "until", ...Object.values(columns)];
  table.createTHead().insertRow().append(...heads.map(text => make("th", text, { scope: "col" })));
  const body = table.createTBody();
  for (const job of data.jobs) {
    const row = body.insertRow();
    row.append(make("th", job.name, { scope: "row" }));
    const cells = [clock(job.from_us), job.until_us === null ? "-" : clock(job.until_us), ...Object.keys(columns).map(key => job[key])];
    cells.forEach((value, i) => {
      const cell = make("td", typeof value === "number" ? count(value) : value);
      cell.dataset.label = heads[i + 1];
      row.append(cell);
    });
    if (job.words) body.insertRow().append(make("td", job.words, { colSpan: heads.length, className: "words" }));
  }
  get("job-list").replaceChildren(table);
}
