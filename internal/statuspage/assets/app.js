// The frame of the page: what is always shown, and which view is.

import { conditionsView } from "./conditions.js";
import { h, mark, setText } from "./dom.js";
import { explainView } from "./explain.js";
import { age, clock, count, plural } from "./format.js";
import { peersView } from "./peers.js";
import { ratesView } from "./rates.js";
import { routesView } from "./routes.js";
import { empty, take, wrongs } from "./state.js";
import { follow } from "./stream.js";

const views = {
  peers: peersView, routes: routesView, explain: explainView, rates: ratesView,
  conditions: conditionsView,
};

const app = {
  state: empty(),
  offset: 0, // of the agent's clock against this computer's
  now: () => Date.now() + app.offset,
  painted,
};

const at = (id) => document.getElementById(id);
let current = null; // the view that is shown
let link = { up: null, since: Date.now(), why: "" };
let announcing = null; // a timer
let toAnnounce = "";
const everything = { summary: true, peers: [], all: true };

// show makes the view that the address names.
function show() {
  const [name, query] = location.hash.slice(1).split("?");
  const known = Object.hasOwn(views, name);
  if (!known && current) return; // a place in the view, such as a table
  const view = known ? name : "peers";
  const first = current?.name !== view;
  if (first) {
    current = { name: view, ...views[view](app) };
    at("content").replaceChildren(current.root);
  }
  current.query?.(new URLSearchParams(query ?? ""));
  for (const a of document.querySelectorAll("nav a")) {
    if (a.getAttribute("href") === "#" + view) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  if (app.state.summary) update(everything);
}

// painted notes that a view has shown its first data, unless another has taken its place.
function painted(name) {
  const root = document.documentElement;
  if (name !== current.name || root.dataset.view === name) return;
  root.dataset.view = name;
  if (performance.getEntriesByName("painted").length === 0) performance.mark("painted");
}

function update(changed) {
  if (changed.summary) summarize();
  if (current.update) current.update(changed);
  if (!current.waits) painted(current.name);
}

// tile is a link to a view that says how one thing is. It stays, so that it keeps the focus.
function tile(view, name) {
  const shape = h("span");
  const text = h("span");
  const element = h("a", { href: "#" + view }, h("span", { class: "name" }, name),
    h("span", { class: "value" }, shape, text));
  return {
    element,
    set(kind, value) {
      setText(text, value);
      if (element.className === "tile " + kind) return;
      element.className = "tile " + kind;
      shape.replaceChildren(mark(kind));
    },
  };
}

const tiles = {
  sessions: tile("peers", "Sessions up"), routes: tile("routes", "Routes programmed"),
  dataplane: tile("conditions", "Data plane"), datastore: tile("conditions", "Datastore"),
  drain: tile("conditions", "Drain"),
};
const health = h("span");
const reason = h("span");
const others = h("a", { href: "#conditions", hidden: true });
const verdict = h("p", {}, health, reason, " ", others);

// summarize shows in two lines whether anything is wrong.
function summarize() {
  const s = app.state.summary;
  const routes = { desired: 0, programmed: 0, failed: 0 };
  for (const r of s.fib.routes) for (const k of Object.keys(routes)) routes[k] += r[k];
  const wrong = wrongs(s);
  const down = s.counts.peers - s.counts.established;
  const kind = { ready: "ok", degraded: "warn" }[s.health] ?? "bad";
  if (verdict.className !== "health " + kind) {
    verdict.className = "health " + kind;
    health.replaceChildren(mark(kind), h("b", {}, title(s.health)));
  }
  setText(reason, wrong.length ? ` – ${wrong[0]}` : "");
  others.hidden = wrong.length < 2;
  setText(others, `and ${wrong.length - 1} more`);
  tiles.sessions.set(down ? "bad" : "ok",
    `${count(s.counts.established)} of ${count(s.counts.peers)}`);
  tiles.routes.set(routes.failed ? "bad" : routes.programmed < routes.desired ? "warn" : "ok",
    `${count(routes.programmed)} of ${count(routes.desired)}`);
  tiles.dataplane.set(s.fib.identity || s.fib.dataplane === "none" ? "ok" : "bad",
    s.fib.version || s.fib.dataplane);
  tiles.datastore.set(s.datastore.connected ? "ok" : "bad",
    s.datastore.connected ? "up" : "away");
  tiles.drain.set(s.drain ? "warn" : "ok", s.drain?.phase ?? "no");
  if (!verdict.parentNode) {
    at("verdict").append(verdict,
      h("div", { class: "tiles" }, ...Object.values(tiles).map((t) => t.element)));
  }
  setText(at("node"), s.node);
  about();
  document.title = `${s.node}: ${s.health}`;
  announce(`${s.node} is ${s.health}` + (down ? `, ${plural(down, "session")} down` : ""));
}

function about() {
  const s = app.state.summary;
  if (!s) return;
  setText(at("about"), `vpp-route-agent ${s.version}, AS ${s.bgp.as}, ` +
    `up ${age(s.started, app.now())}`);
}

function title(text) {
  return text ? text[0].toUpperCase() + text.slice(1) : "";
}

// announce tells who cannot see the page what changed: the newest, every five seconds at most.
function announce(text) {
  if (!announcing) {
    announcing = setTimeout(() => {
      announcing = null;
      setText(at("announcer"), toAnnounce);
    }, 5000);
    if (!toAnnounce) setText(at("announcer"), text);
  }
  toAnnounce = text;
}

function showLink() {
  const kind = link.up ? "ok" : link.up === null ? "idle" : "bad";
  let text = link.up ? "Live" : link.up === null ? "Connecting" :
    `The agent has not answered since ${clock(link.since, Date.now())}: ${link.why}`;
  const stale = app.state.looked && app.state.now - app.state.looked > 10000;
  if (link.up && stale) {
    text = `What is shown is from ${clock(app.state.looked, app.state.now)}: the agent is busy`;
  }
  at("link").className = "link " + (stale && link.up ? "warn" : kind);
  at("link").firstElementChild.replaceChildren(mark(stale && link.up ? "warn" : kind));
  setText(at("link-text"), text);
  document.documentElement.classList.toggle("lost", link.up === false);
}

addEventListener("hashchange", show);
show();
follow((event) => {
  app.offset = event.now - Date.now();
  const changed = take(app.state, event);
  showLink();
  if (app.state.summary && (changed.summary || changed.all || changed.peers.length)) {
    update(changed);
  }
}, (is) => {
  link = is;
  showLink();
  if (is.up === false) announce(at("link-text").textContent);
  if (is.up === null && app.state.summary) document.title = app.state.summary.node;
});
setInterval(() => {
  about();
  current.tick?.();
}, 10000);
