"use strict";
// What an operator does about the chosen place, on a live controller's page: acknowledge it with a
// note, deny it, lift that. Such a request carries the token itself, which stays in this page's
// memory: the cookie only reads, so no other page can make a browser change anything.

let token = "";

function operator() {
  const entries = data.denylist || [];
  get("denied").hidden = get("act").hidden = !data.live;
  fill(get("entries"), entries.map(entry => chooser(entry.where,
    `${entry.source}, since ${clock(entry.since_us)}${entry.until_us === null ? "" : ` until ${clock(entry.until_us)}`}: ${entry.reason}`)), "No place is denied.");
  get("lift").hidden = !entries.some(entry => entry.where === chosen && entry.source === "operator");
  get("who").hidden = Boolean(token);
}

async function act(what) {
  const text = get("text").value.trim(), given = token || get("token").value.trim();
  const deny = { where: chosen, reason: text || "an operator's decision", for_s: what === "lift" ? 0 : Number(get("for").value) };
  const [path, body] = what === "note" ? ["notes", { where: chosen, text }] : ["denylist", deny];
  const answer = await fetch(path, { method: "POST", headers: { Authorization: `Bearer ${given}` }, body: JSON.stringify(body) });
  if (!answer.ok) {
    if (answer.status === 401) token = "";
    throw new Error((await answer.json()).error);
  }
  token = given;
  get("text").value = "";
  await again();
}

get("act").addEventListener("submit", event => {
  event.preventDefault();
  get("said").textContent = "";
  act(event.submitter.value).then(() => { get("said").textContent = "Done, and logged."; })
    .catch(error => { get("said").textContent = error.message; }).finally(operator);
});
