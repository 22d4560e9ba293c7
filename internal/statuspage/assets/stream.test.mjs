import assert from "node:assert/strict";
import test from "node:test";
import { follow } from "./stream.js";

// browser replaces what follow needs of one.
function browser(t) {
  const streams = [];
  const listeners = [];
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  globalThis.EventSource = class {
    constructor() {
      this.handlers = {};
      this.open = true;
      streams.push(this);
    }
    addEventListener(name, f) { this.handlers[name] = f; }
    close() { this.open = false; }
  };
  globalThis.document = {
    visibilityState: "visible",
    addEventListener: (name, f) => { if (name === "visibilitychange") listeners.push(f); },
  };
  t.after(() => {
    delete globalThis.EventSource;
    delete globalThis.document;
  });
  return {
    streams,
    turn(to) {
      document.visibilityState = to;
      for (const f of listeners) f();
    },
    open: () => streams.filter((s) => s.open).length,
  };
}

const beat = { data: "{}" };

test("a hidden tab holds no connection", (t) => {
  const b = browser(t);
  const links = [];
  follow(() => {}, (link) => links.push(link));
  b.streams[0].handlers.beat(beat);
  assert.deepEqual([b.open(), links.at(-1).up], [1, true]);
  b.turn("hidden");
  assert.deepEqual([b.open(), links.at(-1).up], [0, null]);
  t.mock.timers.tick(60_000); // nothing is missed meanwhile
  assert.deepEqual([b.open(), links.length], [0, 2]);
  b.turn("visible");
  assert.equal(b.open(), 1);
  b.turn("visible");
  assert.equal(b.open(), 1);
  b.streams[1].handlers.beat(beat);
  assert.equal(links.at(-1).up, true);
});

test("a tab that is opened in the background waits until it is seen", (t) => {
  const b = browser(t);
  document.visibilityState = "hidden";
  follow(() => {}, () => {});
  assert.equal(b.open(), 0);
  b.turn("visible");
  assert.equal(b.open(), 1);
});

test("an agent that says nothing is asked again, and not while the tab is hidden", async (t) => {
  const b = browser(t);
  const links = [];
  t.mock.method(globalThis, "fetch", () => Promise.reject(new Error("no network")));
  follow(() => {}, (link) => links.push(link));
  b.streams[0].handlers.beat(beat);
  t.mock.timers.tick(12_000);
  assert.deepEqual([b.open(), links.at(-1).up, links.at(-1).since], [0, false, 1_000_000]);
  t.mock.timers.tick(1000);
  assert.equal(b.open(), 1);
  b.streams[1].onerror();
  b.turn("hidden");
  await Promise.resolve();
  t.mock.timers.tick(60_000);
  assert.deepEqual([b.open(), b.streams.length], [0, 2]);
  b.turn("visible");
  assert.equal(b.open(), 1);
});
