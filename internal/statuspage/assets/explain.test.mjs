import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { explanation } from "./explain.js";

// element has of an element what dom.js needs, and its text.
class element {
  constructor() { this.children = []; }
  append(...children) { this.children.push(...children); }
  setAttribute() {}
  addEventListener() {}
  get textContent() { return this.children.map((c) => c.textContent ?? String(c)).join(" "); }
}

// The file has every field of the JSON (answers_test.go). Each is shown, but for those that the
// page says elsewhere, or by a mark, a date or words of its own.
test("an explanation has all that the command's JSON has", (t) => {
  globalThis.document = { createElement: () => new element(), createElementNS: () =>
    new element() };
  t.after(() => delete globalThis.document);
  const e = JSON.parse(readFileSync(
    new URL("../testdata/explanation.json", import.meta.url), "utf8"));
  const now = Date.parse("2026-11-01T00:00:07Z");
  const shown = explanation(e, now).map((x) => x.textContent).join(" ");
  const otherwise = new Set(
    ["explanation.node", "explanation.version", "since", "key", "IGP", "via", "tunl0"]);
  const look = (value, path, name) => {
    if (value !== null && typeof value === "object") {
      for (const [k, v] of Object.entries(value)) look(v, `${path}.${k}`, k);
    } else if ([path, name, value].some((x) => otherwise.has(x))) {
      return;
    } else if (typeof value === "string") {
      assert.ok(shown.includes(value), `${path} is not shown: ${value}`);
    } else if (typeof value === "number" && value !== 1) {
      assert.match(shown, new RegExp(`\\b${value}\\b`), `${path} is not shown: ${value}`);
    }
  };
  look(e, "explanation", "");
  for (const text of ["elevated", "stale", "/key/alone", "7 s"]) {
    assert.ok(shown.includes(text), `${text} is not shown`);
  }
});
