import assert from "node:assert/strict";
import test from "node:test";
import {
  empty, kindOf, layerOf, longest, matches, shorten, take, tally, worstFirst, wrongs,
} from "./state.js";

const up = (peer, more) => ({ peer, established: true, endOfRIB: true, state: "Established",
  ...more });

test("events add up to the state", () => {
  const s = empty();
  take(s, { now: 1, looked: 1, all: true, peers: [up("a"), up("b")], summary: { node: "x" } });
  const c = take(s, { now: 2, looked: 2, all: false,
    peers: [up("b", { established: false, state: "Active" })] });
  assert.deepEqual(s.peers.map(kindOf), ["up", "down"]);
  assert.equal(s.summary.node, "x");
  assert.deepEqual([c.summary, c.all, c.peers.length], [false, false, 1]);
  take(s, { now: 3, looked: 2 }); // a beat
  assert.equal(s.peers.length, 2);
  take(s, { now: 4, looked: 4, all: true, peers: [up("c")] });
  assert.deepEqual(s.peers.map((p) => p.peer), ["c"]);
});

test("kinds follow the state of RFC 4271 and End-of-RIB", () => {
  assert.equal(kindOf(up("a")), "up");
  assert.equal(kindOf(up("a", { endOfRIB: false })), "receiving");
  for (const state of ["OpenSent", "OpenConfirm"]) assert.equal(kindOf({ state }), "handshake");
  for (const state of ["Idle", "Connect", "Active"]) assert.equal(kindOf({ state }), "down");
});

test("layers", () => {
  assert.equal(layerOf({ type: "local workload" }), "workloads");
  assert.equal(layerOf({ node: "n", reflector: true }), "reflectors");
  assert.equal(layerOf({ node: "n" }), "nodes");
  assert.equal(layerOf({}), "outside");
});

test("the worst come first, and nothing else moves", () => {
  const down = { peer: "d", state: "Active" };
  const opening = { peer: "o", state: "OpenSent" };
  const all = [up("a"), opening, up("b"), down];
  assert.deepEqual(worstFirst(all).map((p) => p.peer), ["d", "o", "a", "b"]);
  assert.deepEqual(all.map((p) => p.peer), ["a", "o", "b", "d"]);
  assert.deepEqual(tally(all), { down: 1, handshake: 1, receiving: 0, up: 2 });
});

test("names that differ look different on the map, wherever they differ", () => {
  const numbered = (before, after) => [1, 2, 3, 10, 11].map((i) => before + i + after);
  for (const names of [
    numbered("aks-nodepool1-12345678-vmss00000", ""),
    numbered("k8s-worker-pool-a-", ""),
    numbered("ip-10-0-0-", ".eu-central-1.compute.internal"),
    numbered("kubernetes-worker-", "-of-cluster"),
    ["a-1", "a-2", "b-1", "b-2"].map((s) => "prod-cluster-" + s.replace("-", "-of-germany-node-")),
    [...numbered("k8s-worker-pool-a-", ""), ...numbered("ip-10-0-0-", ".compute.internal"), "n1"],
  ]) {
    const short = shorten(names);
    const labels = names.map(short);
    assert.equal(new Set(labels).size, names.length, labels.join());
    for (const text of labels) assert.ok(text.length <= longest, text);
  }
});

test("a name is cut only where it is too long, and then in the middle if that will do", () => {
  const names = ["k8s-worker-pool-12", "k8s-worker-pool-a-1", "k8s-worker-pool-a-2"];
  const short = shorten([...names, ...names]); // as of nodes with two sessions
  assert.deepEqual(names.map(short),
    ["k8s-worker-pool-12", "k8s-work…-pool-a-1", "k8s-work…-pool-a-2"]);
});

test("a filter's words must all fit", () => {
  const p = up("10.0.0.7", { node: "node-7", remoteAS: 64512, type: "global" });
  for (const text of ["10.0", "NODE-7", "as64512 global", "node established"]) {
    assert.ok(matches(p, text), text);
  }
  assert.ok(!matches(p, "node-7 active"));
});

test("what is wrong is told once, what fails first", () => {
  assert.deepEqual(wrongs({
    conditions: [{ name: "bgp", ok: true }, { name: "fib", ok: false, reason: "sweep_waits",
      message: "waiting 18s" }],
    degraded: [{ condition: "bgp", reason: "sessions_down" },
      { condition: "fib", reason: "sweep_waits" }],
  }), ["fib: waiting 18s", "bgp: sessions down"]);
});
