import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { explanation } from "./explain.js";

// element has of an element what dom.js needs, and shows its attributes and its text.
class element {
  constructor() { this.children = []; }
  append(...children) { this.children.push(...children); }
  setAttribute(name, value) { this.children.push(`${name}=${value}`); }
  addEventListener() {}
  get shown() { return this.children.map((c) => c.shown ?? String(c)).join(" "); }
}

// What these say the page says elsewhere: in its head, by the step that fails, by the name of the
// resource. The best path is accepted and needs no reason, a route with paths is "via" them, and
// what leaves by a tunnel has no other interface.
const elsewhere = ["node", "version", "fails", "problems.0.key", "paths.0.accepted",
  "paths.0.reason", "routes.0.kind", "inside.0.kind", "routes.0.claims.0.kind",
  ...["routes.0.paths", "routes.0.claims.0.paths.0.used", "inside.0.paths", "dataplane.match.paths",
    "dataplane.nextHops"].map((paths) => paths + ".1.interface")];

// other is another value of a field than v.
function other(field, v) {
  if (field === "since") return "2001-02-03T04:05:06Z";
  return { boolean: !v, number: v + 1, string: v + "x" }[typeof v];
}

globalThis.document = { createElement: () => new element(), createElementNS: () => new element() };

// sample has every field of the JSON (answers_test.go).
const sample = () => JSON.parse(readFileSync(
  new URL("../testdata/explanation.json", import.meta.url), "utf8"));

const shown = (e) => explanation(e, Date.parse("2026-11-01T00:00:07Z")).map((x) => x.shown).join();

// words is what is shown without attributes.
const words = (e) => shown(e).replace(/\w+=\S* ?/g, "").replace(/\s+/g, " ");

test("whichever field of the JSON says something else, the page does", () => {
  const e = sample();
  const show = () => shown(e);
  const before = show();
  const same = [];
  let looks = 0;
  const look = (of, path) => {
    for (const [k, v] of Object.entries(of)) {
      const at = path + k;
      if (v !== null && typeof v === "object") {
        look(v, at + ".");
        continue;
      }
      of[k] = other(k, v);
      if (show() === before) same.push(at);
      of[k] = v;
      looks++;
    }
  };
  look(e, "");
  assert.deepEqual(same.sort(), elsewhere.sort());
  assert.ok(looks > 100, `${looks} values`);
});

test("a next hop is told once, and the one behind which it is", () => {
  const e = sample();
  const [way] = e.routes[0].claims[0].paths;
  for (const [wanted, used, want] of [
    [{ nextHop: "192.0.2.1" }, { nextHop: "192.0.2.1", interface: "eth1" }, "192.0.2.1 eth1"],
    [{ nextHop: "192.0.2.1" }, { nextHop: "192.0.2.2", interface: "eth2" },
      "192.0.2.1 through 192.0.2.2 eth2"],
    [{ interface: "eth3" }, { interface: "eth3" }, "eth3"],
    [{ interface: "eth4" }, { interface: "eth5" }, "eth4 through eth5"],
    [{ nextHop: "64:ff9b::c000:201", interface: "tunl0" },
      { nextHop: "192.0.2.1", interface: "tunl0", encapsulation: "IPIP" }, "192.0.2.1 by IPIP"],
  ]) {
    e.routes[0].claims = [{ origin: "o", distance: 1, kind: "via", chosen: true, paths: [
      { by: way.by, used: [used], ...wanted }] }];
    const text = words(e);
    assert.ok(text.includes(`(distance 1) yes ${want} ${way.by}`), text);
  }
});

test("only a match that is known not to forward is said not to", () => {
  const e = sample();
  const { match } = e.dataplane;
  for (const [forwards, says] of [[true, false], [false, true], [undefined, false]]) {
    match.forwards = forwards;
    const text = words(e);
    assert.ok(text.includes(`${match.prefix} of ${match.owner}`), text);
    assert.equal(text.includes("does not forward"), says, `forwards: ${forwards}`);
  }
});
