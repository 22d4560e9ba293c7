// Where the map has what. Pure: from peers to coordinates.

import { layerOf, longest, nameOf } from "./state.js";

export const width = 640;
const margin = 28;

// mostPlaced bounds the peers of a layer that have a place: more could not be told apart.
export const mostPlaced = { outside: 400, reflectors: 400, nodes: 5000, workloads: 400 };

// layout places the peers: those outside the cluster and route reflectors in rows above, nodes in
// rings around the agent's own node, workloads in rows below. Places follow the order of peers, so
// that none moves when its state changes. Captions say how many there are, and how many of them
// have a place if not all.
export function layout(peers) {
  const layers = { outside: [], reflectors: [], nodes: [], workloads: [] };
  for (const p of peers) layers[layerOf(p)].push(p);
  const out = { width, height: 0, centre: null, places: [], captions: [] };
  const place = (how, layer, y) => {
    const all = layers[layer];
    const placed = all.slice(0, mostPlaced[layer]);
    if (all.length > 0) {
      out.captions.push({ layer, count: all.length, placed: placed.length, x: 0, y: y + 14 });
    }
    return how(out, layer, placed, y);
  };
  let y = 8;
  for (const layer of ["outside", "reflectors"]) y = place(rows, layer, y);
  y = place(rings, "nodes", y);
  y = place(rows, "workloads", y);
  out.height = y + 8;
  return out;
}

// room is what the longest name takes, in the letters of page.css on a phone, the largest.
const room = (peers) => 10 * Math.min(longest, Math.max(...peers.map((p) => nameOf(p).length)));

// rows places a layer in rows of at most 40, and a few peers with their names below them.
function rows(out, layer, peers, y) {
  if (peers.length === 0) return y;
  y += 44;
  const named = peers.length <= 12;
  const most = named ? Math.floor((width - 2 * margin) / (room(peers) + 12)) : 40;
  const perRow = Math.ceil(peers.length / Math.ceil(peers.length / most));
  const step = (width - 2 * margin) / perRow;
  const r = Math.min(9, step * 0.4);
  const pitch = 2 * r + (named ? 28 : 10);
  peers.forEach((peer, i) => {
    const row = Math.floor(i / perRow);
    const inRow = Math.min(perRow, peers.length - row * perRow);
    const x = width / 2 + (i % perRow - (inRow - 1) / 2) * step;
    const at = y + row * pitch;
    const label = named ? { x, y: at + r + 11, anchor: "middle", turn: 0 } : null;
    out.places.push({ peer, layer, x, y: at, r, label });
  });
  return y + (Math.ceil(peers.length / perRow) - 1) * pitch + 40;
}

// rings places nodes around the centre: on one ring where their names have room there, level or,
// when they are more, as rays; else on as many as it takes, the outermost first. Of very many, each
// is smaller.
function rings(out, layer, peers, y) {
  const n = peers.length;
  const few = n <= 40;
  const level = n <= 16;
  const outer = few ? 118 : 268;
  const pad = level ? 44 : few ? 24 + room(peers) : 16;
  const radius = n === 0 ? 10 : outer;
  const cy = y + pad + radius + (n === 0 ? 0 : 8);
  out.centre = { x: width / 2, y: cy, r: 13 };
  const { step, sizes } = few ? { sizes: [{ radius: outer, count: n }] } : ringSizes(n, outer);
  let placed = 0;
  for (const ring of sizes) {
    for (let i = 0; i < ring.count; i++) {
      const angle = -Math.PI / 2 + (2 * Math.PI * (i + 0.5)) / ring.count;
      const x = width / 2 + ring.radius * Math.cos(angle);
      const y = cy + ring.radius * Math.sin(angle);
      out.places.push({
        peer: peers[placed++], layer, x, y, r: few ? 9 : step * 0.38,
        label: few ? beside(x, y, angle, level) : null,
      });
    }
  }
  return cy + radius + pad;
}

// beside is where the name of a node on the ring begins, or ends left of the centre.
function beside(x, y, angle, level) {
  const right = Math.cos(angle) >= 0;
  const anchor = right ? "start" : "end";
  if (level) return { x: x + (right ? 15 : -15), y, anchor, turn: 0 };
  return {
    x: x + 15 * Math.cos(angle), y: y + 15 * Math.sin(angle), anchor,
    turn: angle * 180 / Math.PI - (right ? 0 : 180),
  };
}

// innermost is the radius of the smallest ring: the own node and its name are inside.
const innermost = 52;

// ringSizes fills rings from the outermost, and says how far nodes are apart: 13 units, or as much
// as all have room for.
export function ringSizes(n, outer) {
  for (let step = 13; ; step *= 0.97) {
    const sizes = [];
    let left = n;
    for (let radius = outer; left > 0 && radius >= innermost; radius -= step) {
      const count = Math.min(left, Math.floor((2 * Math.PI * radius) / step));
      sizes.push({ radius, count });
      left -= count;
    }
    if (left === 0) return { step, sizes };
  }
}

// shapes are drawn around a point with a radius. Each kind of session has its own, so that colour
// says nothing that shape does not.
export const shapes = {
  up: (x, y, r) => disc(x, y, r),
  receiving: (x, y, r) => disc(x, y, r) + disc(x, y, r * 0.5, true),
  handshake: (x, y, r) =>
    `M${n(x)} ${n(y - r * 1.1)}L${n(x + r * 1.1)} ${n(y + r * 0.85)}H${n(x - r * 1.1)}Z`,
  down: (x, y, r) => {
    const a = r * 1.3;
    return `M${n(x)} ${n(y - a)}L${n(x + a)} ${n(y)}L${n(x)} ${n(y + a)}L${n(x - a)} ${n(y)}Z`;
  },
};

function disc(x, y, r, inner) {
  const turn = inner ? 0 : 1;
  return `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 ${turn} ${n(2 * r)} 0` +
    `a${n(r)} ${n(r)} 0 1 ${turn} ${n(-2 * r)} 0Z`;
}

function n(v) {
  return Math.round(v * 10) / 10;
}

// neighbour is the place to which an arrow key leads from place i: the nearest one in that
// direction, or i.
export function neighbour(places, i, dx, dy) {
  const from = places[i];
  let best = i;
  let least = Infinity;
  places.forEach((p, j) => {
    const along = (p.x - from.x) * dx + (p.y - from.y) * dy;
    const across = Math.abs((p.x - from.x) * dy) + Math.abs((p.y - from.y) * dx);
    if (j === i || along <= 0.5) return;
    const cost = along + 2 * across;
    if (cost < least) [best, least] = [j, cost];
  });
  return best;
}
