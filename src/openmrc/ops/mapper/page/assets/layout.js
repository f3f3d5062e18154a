"use strict";
// Where nodes of a plane stand, and the two ends of each link, in a box of a given size.

const UP = 1, DOWN = 2;

function Layout(fabric, width) {
  const { nics, planes, t0s, t1s, t0_of } = fabric;
  const pad = 14, height = Math.max(150, Math.min(260, width * 0.42));
  const spineY = 34, leafY = height - 44, nicY = height - 14;
  const spread = (n, i, room = width - 2 * pad) => pad + room * (i + 0.5) / n;
  const first = [], count = new Array(t0s).fill(0);
  t0_of.forEach((t0, nic) => { if (first[t0] === undefined) first[t0] = nic; count[t0] += 1; });
  const share = (width - 2 * pad) / t0s;
  const nicX = nic => {
    const t0 = t0_of[nic], n = count[t0];
    return spread(t0s, t0) + Math.min(share * 0.86, 28 * n) * ((nic - first[t0] + 0.5) / n - 0.5);
  };
  const base = nics * planes;
  return {
    width, height, spineY, leafY, nicY,
    spineX: i => spread(t1s, i), leafX: i => spread(t0s, i), nicX,
    planeOf: link => link < base ? link % planes : Math.floor((link - base) / (t0s * t1s)),
    // From the lower end to the upper one.
    ends(link) {
      if (link < base) {
        const nic = Math.floor(link / planes);
        return [nicX(nic), nicY, spread(t0s, t0_of[nic]), leafY];
      }
      const left = (link - base) % (t0s * t1s);
      return [spread(t0s, Math.floor(left / t1s)), leafY, spread(t1s, left % t1s), spineY];
    },
    name(link) {
      if (link < base) return `nic ${Math.floor(link / planes)} plane ${link % planes}`;
      const left = (link - base) % (t0s * t1s);
      return `plane ${Math.floor((link - base) / (t0s * t1s))} t0 ${Math.floor(left / t1s)} - t1 ${left % t1s}`;
    },
    // The link nearest to a point of a plane's picture, if one is near.
    at(plane, x, y) {
      let best = -1, least = 7;
      const look = link => {
        const [x1, y1, x2, y2] = this.ends(link);
        const dx = x2 - x1, dy = y2 - y1;
        const t = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
        const d = Math.hypot(x - x1 - t * dx, y - y1 - t * dy);
        if (d < least) { least = d; best = link; }
      };
      if (y > leafY) for (let nic = 0; nic < nics; nic++) look(nic * planes + plane);
      else for (let i = 0; i < t0s * t1s; i++) look(base + plane * t0s * t1s + i);
      return best;
    },
  };
}
