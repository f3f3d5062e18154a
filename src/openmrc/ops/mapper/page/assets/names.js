"use strict";
// The fabric's places by their names, and what a name stands for: [[link, directions], ...].

const UP = 1, DOWN = 2;

function Names({ nics, planes, t0_of, tiers, up, upper, bundle }) {
  const first = [nics * planes];  // the first link above each tier; then the number of all
  up.forEach((n, tier) => first.push(first[tier] + planes * tiers[tier] * n));
  // The ends of a link: tier and number of the lower one (tier -1: a NIC), the number of the upper.
  const ends = link => {
    if (link < first[0]) {
      const lower = Math.floor(link / planes);
      return { tier: -1, plane: link % planes, lower, upper: t0_of[lower], parallel: 0 };
    }
    let tier = 0;
    while (link >= first[tier + 1]) tier += 1;
    const each = tiers[tier] * up[tier], plane = Math.floor((link - first[tier]) / each);
    const at = (link - first[tier]) % each;
    return { tier, plane, lower: Math.floor(at / up[tier]), upper: upper[tier][at], parallel: at % up[tier] % bundle[tier] };
  };
  const linkName = link => {
    const { tier, plane, lower, upper: above, parallel } = ends(link);
    if (tier < 0) return `nic ${lower} plane ${plane}`;
    return `plane ${plane} t${tier} ${lower} - t${tier + 1} ${above}${bundle[tier] > 1 ? ` link ${parallel}` : ""}`;
  };
  const index = new Map(), ofPlane = Array.from({ length: planes }, () => []);
  for (let nic = 0; nic < nics; nic++) index.set(`nic ${nic}`, []);
  for (let plane = 0; plane < planes; plane++) index.set(`plane ${plane}`, ofPlane[plane]);
  for (let plane = 0; plane < planes; plane++) tiers.forEach((n, tier) => {
    for (let i = 0; i < n; i++) index.set(`plane ${plane} t${tier} ${i}`, []);
  });
  for (let link = 0; link < first[first.length - 1]; link++) {
    const { tier, plane, lower, upper: above } = ends(link);
    ofPlane[plane].push(link);
    index.get(tier < 0 ? `nic ${lower}` : `plane ${plane} t${tier} ${lower}`).push(link);
    index.get(`plane ${plane} t${tier + 1} ${above}`).push(link);
    index.set(linkName(link), [link]);
  }
  const switchOf = name => /^plane \d+ t(\d+) (\d+)$/.exec(name);
  return {
    ends, linkName, ofPlane, switchOf,
    count: first[first.length - 1],
    // The links of a place, or of one direction of a link; none if no place has this name.
    links(name) {
      const way = / ([<>]) /.exec(name), whole = way ? name.replace(/ [<>] t0$/, "").replace(/ [<>] /, " - ") : name;
      return (index.get(whole) || []).map(link => [link, way ? way[1] === ">" ? UP : DOWN : UP | DOWN]);
    },
    // Names with these words in them, those that begin with them first; a whole number before a longer one.
    like(words, most) {
      const wanted = words.trim().toLowerCase().replace(/\s+/g, " "), found = [[], [], [], []];
      if (!wanted) return [];
      for (const name of index.keys()) {
        const at = name.indexOf(wanted);
        if (at < 0) continue;
        const next = name[at + wanted.length], longer = /\d$/.test(wanted) && next >= "0" && next <= "9";
        const rank = (at === 0 ? 0 : 2) + (longer ? 1 : 0);
        if (found[rank].length < most) found[rank].push(name);
      }
      return found.flat().slice(0, most);
    },
  };
}
