import assert from "node:assert/strict";
import test from "node:test";
import { age, count, plural, rate, seconds } from "./format.js";
import { barsOf, pathOf, quantile } from "./charts.js";

test("numbers", () => {
  assert.equal(count(1234567), "1\u202f234\u202f567");
  assert.equal(plural(1, "route"), "1 route");
  assert.equal(plural(0, "prefix", "prefixes"), "0 prefixes");
  assert.equal(rate(0.125), "0.13");
  assert.equal(rate(226000), "226\u202f000");
});

test("durations have the unit that fits", () => {
  assert.deepEqual([3.8e-6, 0.00098, 0.025, 0.5, 1, 90, 300].map(seconds),
    ["3.8 µs", "980 µs", "25 ms", "500 ms", "1 s", "90 s", "5 min"]);
});

test("ages", () => {
  const now = Date.parse("2026-11-27T12:00:00Z");
  const ago = (s) => age(new Date(now - s * 1000).toISOString(), now);
  assert.deepEqual([0, 59, 61, 3600, 90000, 200000].map(ago),
    ["0 s", "59 s", "1 min", "1 h 0 min", "25 h 0 min", "2 days"]);
  assert.equal(ago(-5), "0 s"); // clocks differ
  assert.equal(age(undefined, now), ""); // of what was never decided
});

test("charts", () => {
  const d = { bounds: [1, 2, 4], counts: [50, 49, 1, 0] };
  assert.deepEqual([quantile(d, 0.5), quantile(d, 0.99), quantile(d, 1)], [1, 2, 4]);
  assert.equal(quantile({ bounds: [1], counts: [0, 9] }, 0.5), Infinity);
  const bars = barsOf([0, 10, 1]);
  assert.equal(bars[0].height, 0);
  assert.ok(bars[1].height > bars[2].height && bars[2].height >= 1);
  assert.equal(pathOf([], 0), "");
  assert.match(pathOf([0, 5, 10], 10), /^M0 [0-9.]+L[0-9.]+ [0-9.]+L[0-9.]+ [0-9.]+$/);
  assert.ok(!pathOf([0, 0], 0).includes("NaN"));
});
