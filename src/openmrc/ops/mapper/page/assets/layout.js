"use strict";
// Where nodes of a plane stand in a box of a given width: NICs below, then tier above tier.

function Layout(fabric, names, width) {
  const { nics, planes, t0_of, tiers } = fabric, pad = 32, room = width - pad - 12, top = tiers.length - 1;
  const height = top > 1 ? Math.max(230, Math.min(400, width * 0.5)) : Math.max(160, Math.min(260, width * 0.42));
  const y = tier => tier < 0 ? height - 14 : height - 44 - (height - 88) * tier / Math.max(top, 1);
  const first = [], count = new Array(tiers[0]).fill(0);
  t0_of.forEach((t0, nic) => { if (first[t0] === undefined) first[t0] = nic; count[t0] += 1; });
  const x = (tier, i) => {
    if (tier >= 0) return pad + room * (i + 0.5) / tiers[tier];
    const t0 = t0_of[i], n = count[t0];
    return x(0, t0) + Math.min(room / tiers[0] * 0.86, 28 * n) * ((i - first[t0] + 0.5) / n - 0.5);
  };
  const size = tier => tier < 0 ? Math.max(2, Math.min(5, 0.7 * width / nics)) : Math.max(2, Math.min(22, 0.8 * room / tiers[tier]));
  // From the lower end to the upper one.
  const ends = link => {
    const { tier, lower, upper } = names.ends(link);
    return [x(tier, lower), y(tier) - (tier < 0 ? 2 : 6), x(tier + 1, upper), y(tier + 1) + 6];
  };
  return {
    width, height, x, y, size, ends,
    // The name of the node or link nearest to a point of a plane's picture, "" if none is near.
    at(plane, px, py) {
      for (let tier = -1; tier <= top; tier++) {
        if (Math.abs(py - y(tier)) > 8) continue;
        const n = tier < 0 ? nics : tiers[tier];
        let best = 0;
        for (let i = 1; i < n; i++) if (Math.abs(x(tier, i) - px) < Math.abs(x(tier, best) - px)) best = i;
        if (Math.abs(x(tier, best) - px) < Math.max(6, size(tier) / 2 + 2)) return tier < 0 ? `nic ${best}` : `plane ${plane} t${tier} ${best}`;
      }
      let best = -1, least = 7;
      for (const link of names.ofPlane[plane]) {
        const [x1, y1, x2, y2] = ends(link);
        if (py > y1 || py < y2) continue;
        const dx = x2 - x1, dy = y2 - y1, t = ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy);
        const far = Math.hypot(px - x1 - t * dx, py - y1 - t * dy);
        if (far < least) { least = far; best = link; }
      }
      return best < 0 ? "" : names.linkName(best);
    },
  };
}
