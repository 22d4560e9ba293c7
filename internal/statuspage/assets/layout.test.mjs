import assert from "node:assert/strict";
import test from "node:test";
import { layout, mostPlaced, neighbour, ringSizes, shapes, width } from "./layout.js";
import { longest, nameOf } from "./state.js";

const mesh = (n) => Array.from({ length: n }, (_, i) => ({ peer: `10.0.0.${i}`, node: `n${i}` }));

test("every peer has a place of its own, inside the picture", () => {
  for (const n of [0, 1, 2, 40, 41, 150, 1000, 1400, 2000, 5000]) {
    const peers = [...mesh(n), { peer: "tor" }, { peer: "rr", node: "r", reflector: true },
      { peer: "w", type: "local workload" }];
    const plan = layout(peers);
    assert.equal(plan.places.length, n + 3);
    assert.equal(new Set(plan.places.map((p) => p.peer)).size, n + 3);
    for (const p of plan.places) {
      assert.ok(p.x >= 0 && p.x <= width && p.y >= 0 && p.y <= plan.height, `${n}: ${p.x},${p.y}`);
    }
    plan.places.sort((p, q) => p.x - q.x);
    for (const [i, p] of plan.places.entries()) {
      for (let j = i + 1; j < plan.places.length && plan.places[j].x - p.x < 30; j++) {
        const q = plan.places[j];
        const apart = Math.hypot(p.x - q.x, p.y - q.y);
        assert.ok(apart > p.r + q.r, `${n} nodes: two of radius ${p.r} are ${apart} apart`);
      }
    }
  }
});

test("layers follow each other: outside, reflectors, nodes, workloads", () => {
  const plan = layout([{ peer: "w", type: "local workload" }, ...mesh(3),
    { peer: "rr", node: "r", reflector: true }, { peer: "tor" }]);
  const y = (layer) => plan.places.filter((p) => p.layer === layer).map((p) => p.y);
  assert.ok(y("outside")[0] < y("reflectors")[0]);
  assert.ok(y("reflectors")[0] < Math.min(...y("nodes")));
  assert.ok(Math.max(...y("nodes")) < y("workloads")[0]);
  assert.deepEqual(plan.captions.map((c) => c.layer),
    ["outside", "reflectors", "nodes", "workloads"]);
});

// line is where the letters of a label are, its middle line by points that are close together.
function line({ label, peer }, letter) {
  const long = Math.min(longest, nameOf(peer).length) * letter;
  const from = { start: 0, middle: -long / 2, end: -long }[label.anchor];
  const turn = label.turn * Math.PI / 180;
  return Array.from({ length: Math.ceil(long / 4) + 1 }, (_, i) => {
    const along = from + Math.min(long, 4 * i);
    return { x: label.x + along * Math.cos(turn), y: label.y + along * Math.sin(turn) };
  });
}

test("names lie on nothing else, inside the picture", () => {
  const [letter, high] = [10, 14];
  for (const n of [1, 5, 12, 16, 17, 29, 40]) {
    const name = (i) => "a-name-that-is-long-" + i;
    const peers = [...mesh(n).map((p, i) => ({ ...p, node: n === 29 ? `n${i}` : name(i) })),
      ...Array.from({ length: 12 }, (_, i) => ({ peer: n === 5 ? name(i) : `192.0.2.${i}` })),
      { peer: "w", type: "local workload" }];
    const plan = layout(peers);
    // where the caption of the next layer begins, or the picture ends
    const end = (layer) => {
      const next = plan.captions[plan.captions.findIndex((c) => c.layer === layer) + 1];
      return next ? next.y - high : plan.height;
    };
    const lines = plan.places.map((p) => line(p, letter));
    plan.places.forEach((p, i) => {
      for (const at of lines[i]) {
        assert.ok(at.x >= 0 && at.x <= width && at.y >= high / 2 && at.y <= end(p.layer) - high / 2,
          `${n} nodes: a name reaches ${at.x},${at.y}`);
        plan.places.forEach((q, j) => {
          if (i === j) return;
          assert.ok(Math.hypot(at.x - q.x, at.y - q.y) > q.r + high / 2, `${n}: ${i} on dot ${j}`);
          for (const other of lines[j]) {
            assert.ok(Math.hypot(at.x - other.x, at.y - other.y) > high, `${n}: ${i} on ${j}`);
          }
        });
      }
    });
  }
});

test("no peer moves when its state changes", () => {
  const at = (peers) => layout(peers).places.map((p) => [p.x, p.y]);
  const peers = mesh(100);
  assert.deepEqual(at(peers), at(peers.map((p) => ({ ...p, established: true }))));
});

test("rings take all, and their nodes can be told apart", () => {
  for (const n of [41, 500, 1400, 3000, 5000]) {
    const { step, sizes } = ringSizes(n, 268);
    assert.equal(sizes.reduce((sum, r) => sum + r.count, 0), n);
    assert.ok(step > (n > 1200 ? 6 : 12.9), `${n} nodes: ${step} apart`);
  }
});

test("what has no place is counted", () => {
  const tors = Array.from({ length: 900 }, (_, i) => ({ peer: `tor-${i}` }));
  const plan = layout([...mesh(5001), ...tors]);
  assert.equal(plan.places.length, mostPlaced.nodes + mostPlaced.outside);
  assert.deepEqual(plan.captions.map((c) => [c.layer, c.count, c.placed]),
    [["outside", 900, 400], ["nodes", 5001, 5000]]);
  assert.ok(plan.height < 1200, `${plan.height} high`);
});

test("arrow keys reach every node and stop at the edge", () => {
  for (const n of [12, 40, 41, 5000]) {
    const { places } = layout([...mesh(n), { peer: "tor" }]);
    const seen = new Set([0]);
    const todo = [0];
    while (todo.length && seen.size < places.length) {
      const i = todo.pop();
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        const j = neighbour(places, i, dx, dy);
        if (!seen.has(j)) todo.push(j);
        seen.add(j);
      }
    }
    assert.equal(seen.size, places.length, `${n} nodes`);
    const top = places.findIndex((p) => p.peer.peer === "tor");
    assert.equal(neighbour(places, top, 0, -1), top);
  }
});

test("each kind of session has its own shape", () => {
  const drawn = Object.values(shapes).map((draw) => draw(10, 10, 5));
  assert.equal(new Set(drawn).size, 4);
  for (const d of drawn) assert.match(d, /^M[-0-9.]+ [-0-9.]+/);
});
