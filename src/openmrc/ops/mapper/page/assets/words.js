"use strict";
// Times, rates and counts as people read them; elements with words in them.

const get = id => document.getElementById(id);

function make(tag, text = "", of = {}) {
  const element = Object.assign(document.createElement(tag), of);
  if (text !== "") element.textContent = text;
  return element;
}

const percent = rate => rate >= 0.995 ? "lets nothing through" : `loses ${Number((100 * rate).toPrecision(2))} %`;
const count = n => n.toLocaleString("en");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;

function clock(us) {
  if (!data.unix) return us === 0 ? "0" : lasted(us, 4);
  const date = new Date(us / 1000), end = new Date(data.until_us / 1000);
  const fine = data.until_us - data.from_us < 6e7 ? "." + String(date.getMilliseconds()).padStart(3, "0") : "";
  const time = date.toLocaleTimeString("en-GB") + fine;
  if (date.toDateString() === end.toDateString()) return time;
  const day = end - date < 5 * 864e5 ? date.toLocaleDateString("en-GB", { weekday: "short" }) : date.toLocaleDateString("en-CA");
  return `${day} ${time}`;
}

function lasted(us, digits = 2) {
  const [unit, each] = [["d", 864e8], ["h", 36e8], ["min", 6e7], ["s", 1e6], ["ms", 1e3], ["µs", 1]]
    .find(([name, each]) => us >= each && (data.unix || each <= 1e6)) || ["µs", 1];
  return `${Number((us / each).toPrecision(digits))} ${unit}`;
}
