// The view of routes: a search that the agent answers, a page at a time.

import { ask } from "./ask.js";
import { h, kindLabel, replace, setText } from "./dom.js";
import { age, count } from "./format.js";
import { routeMark } from "./state.js";

const states = [
  "programmed", "pending", "failed", "unusable", "held", "deleting", "shadowed", "drifted",
];
const origins = ["bgp", "etcd", "own", "external", "uplink", "overlay"];
const pause = 250; // after a key, before the agent is asked

export function routesView(app) {
  let timer = null;
  let pages = [""]; // the ?after= of each page up to the one that is shown
  let next = null;
  let asked = 0;
  let known = ""; // the counts of routes when they were listed last

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!root.isConnected) return; // another view has taken the place
      pages = [""];
      remember();
      list();
    }, pause);
  };
  const text = h("input", {
    type: "search", id: "route-text", autocomplete: "off", spellcheck: "false", maxlength: "200",
    placeholder: "10.1.3.7, 10.1.0.0/16, 10.1., node-7, eth0", input: later,
  });
  const choose = (id, name, all) => h("select", { id, change: later },
    h("option", { value: "" }, name), ...all.map((o) => h("option", {}, o)));
  const state = choose("route-state", "any state", states);
  const origin = choose("route-origin", "any origin", origins);
  const total = h("p", { class: "total", role: "status" });
  const heading = h("h2", { id: "routes-title", tabindex: "-1" }, "Routes");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const again = h("button", { type: "button", hidden: true, click: () => list() }, "Ask again");
  const body = h("tbody");
  // turner turns pages. It keeps the focus where it cannot turn; a disabled button would lose it.
  const turner = (name, turn) => {
    const button = h("button", {
      type: "button", click: () => {
        if (button.getAttribute("aria-disabled") === "true") return;
        turn();
        list();
      },
    }, name);
    return button;
  };
  const newer = turner("Previous", () => pages.pop());
  const older = turner("Next", () => pages.push(next));
  const enable = (button, can) => button.setAttribute("aria-disabled", String(!can));

  const root = h("section", { class: "card", "aria-labelledby": "routes-title" },
    heading,
    h("form", { class: "tools", role: "search", submit: (e) => { e.preventDefault(); later(); } },
      h("label", { for: "route-text" }, "Search"), text,
      h("label", { for: "route-state", class: "hidden" }, "State"), state,
      h("label", { for: "route-origin", class: "hidden" }, "Origin"), origin, total),
    problem, h("p", {}, again),
    h("table", {},
      h("caption", { class: "hidden" }, "Routes; a prefix leads to its explanation"),
      h("thead", {}, h("tr", {}, ...[
        ["State"], ["Prefix"], ["Next hops"], ["Origin", "mid"], ["Since", "mid"],
        ["Why not as wanted", "wide"],
      ].map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
      body),
    h("p", { class: "tools" }, newer, older));

  // remember puts the search into the address, so that it can be sent to a colleague.
  function remember() {
    const q = new URLSearchParams();
    if (text.value.trim()) q.set("q", text.value.trim());
    if (state.value) q.set("state", state.value);
    if (origin.value) q.set("origin", origin.value);
    const hash = "#routes" + (q.size ? "?" + q : "");
    if (location.hash !== hash) history.replaceState(null, "", hash);
  }

  async function list() {
    const mine = ++asked;
    const q = new URLSearchParams({ q: text.value.trim() });
    if (state.value) q.set("state", state.value);
    if (origin.value) q.set("origin", origin.value);
    const after = pages[pages.length - 1];
    if (after) q.set("after", after);
    known = counts();
    enable(older, false); // the next page is known by the answer
    enable(newer, false);
    const answer = await ask("/page/routes?" + q);
    if (mine !== asked) return;
    problem.hidden = !answer.problem;
    setText(problem, answer.problem ?? "");
    if (!answer.problem && document.activeElement === again) heading.focus();
    again.hidden = !answer.problem;
    enable(newer, pages.length > 1);
    if (answer.problem) {
      known = ""; // tick asks again
      return;
    }
    show(answer);
    app.painted("routes");
  }

  function show(answer) {
    next = answer.next ?? null;
    const first = (pages.length - 1) * 100;
    setText(total, answer.routes.length === 0 ? "No route fits" :
      `${count(first + 1)} to ${count(first + answer.routes.length)} of ${count(answer.count)}`);
    replace(body, answer.routes.map((r) => row(r, answer.nodes)));
    enable(older, next !== null);
  }

  function row(r, nodes) {
    return h("tr", {},
      h("td", {}, kindLabel(routeMark(r.state), r.state)),
      h("td", { class: "address" },
        h("a", { href: "#explain?q=" + encodeURIComponent(r.prefix) }, r.prefix),
        h("span", { class: "note" }, extras(r)),
        r.reason ? h("span", { class: "narrow note" }, r.reason) : null),
      h("td", {}, r.paths.length ? r.paths.map((p, i) => hop(p, nodes, i)) : r.kind),
      h("td", { class: "mid" }, originOf(r)),
      h("td", { class: "mid" }, age(r.since, app.now())),
      h("td", { class: "wide" }, r.reason ?? ""));
  }

  function counts() {
    return JSON.stringify([app.state.summary?.fib.routes, app.state.summary?.fib.opsPut]);
  }

  return {
    root,
    waits: true, // it is painted when the agent has answered
    query(q) {
      text.value = q.get("q") ?? "";
      state.value = q.get("state") ?? "";
      origin.value = q.get("origin") ?? "";
      pages = [""];
      list();
    },
    // tick asks again for what is shown if routes have changed meanwhile, or it is not known.
    tick() {
      if (document.visibilityState === "visible" && counts() !== known &&
        !body.contains(document.activeElement)) list();
    },
  };
}

// extras says what distinguishes a route from others of its prefix.
export function extras(r) {
  return (r.elevated ? " elevated" : "") + (r.table ? ` in table ${r.table}` : "");
}

export function originOf(r) {
  return r.source ? `${r.origin} (${r.source})` : r.origin;
}

// hop shows one path.
export function hop(p, nodes, i) {
  const to = [p.nextHop, nodes[p.nextHop] ? `(${nodes[p.nextHop]})` : "",
    p.interface && !p.encapsulation ? p.interface : "",
    p.encapsulation ? `by ${p.encapsulation}` : "",
    p.table !== undefined ? `in table ${p.table}` : "",
    p.weight > 1 ? `weight ${p.weight}` : ""].filter(Boolean).join(" ");
  return h("span", { class: "hop" }, (i ? ", " : "") + to);
}
