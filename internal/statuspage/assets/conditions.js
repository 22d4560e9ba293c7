// The view of conditions: what must hold, what is not as it should be, and the drain.

import { facts, h, kindLabel, replace, table } from "./dom.js";
import { clock, count, plural } from "./format.js";
import { inWords } from "./state.js";

export function conditionsView(app) {
  const root = h("div", { class: "cards" });
  let shown = "";

  function update() {
    const s = app.state.summary;
    const text = JSON.stringify(s);
    if (text === shown) return;
    shown = text;
    const now = app.now();
    replace(root, [
      card("Conditions", h("ul", { class: "lines" }, ...s.conditions.map((c) =>
        line(c.ok ? c.message ? "warn" : "ok" : "bad", c.name,
          c.message ?? (c.ok ? "holds" : c.reason))))),
      card("Degraded", s.degraded.length ? h("ul", { class: "lines" }, ...s.degraded.map((d) =>
        line("warn", d.condition, inWords(d.reason)))) : nothing("Nothing is degraded.")),
      card("Drain", drain(s.drain, now)),
      card("Data plane", facts([
        ["Kind", s.fib.dataplane], ["Version", s.fib.version], ["Problem", s.fib.problem],
        ["Sweep", s.fib.sweep], ["Journal", s.fib.journal],
        ["Queued", `${plural(s.fib.opsQueued, "operation")}`],
        ["Refused", `${plural(s.fib.opsFailed, "operation")} since the start`],
        ["Drift", `${count(s.fib.drift.missing)} missing, ${count(s.fib.drift.different)} ` +
          `different, ${count(s.fib.drift.extra)} extra; ${count(s.fib.drift.repaired)} repaired`],
        ["Tunnels", s.fib.tunnels && `${count(s.fib.tunnels.programmed)} of ` +
          `${count(s.fib.tunnels.desired)} programmed`],
      ])),
      card("Routes", facts(s.fib.routes.map((r) => [`${r.family}, ${r.origin}`, routes(r)])) ??
        nothing("There are no routes.")),
      s.fib.guard.length ? card("Held deletions", table([["Origin"], ["Held", "num"], ["Since"],
        ["Released"]], s.fib.guard.map((g) => [g.origin, count(g.held), clock(g.since, now),
        clock(g.releases, now)]))) : null,
      card("Datastore", facts([
        ["Type", s.datastore.type], ["Endpoints", s.datastore.endpoints.join(", ")],
        ["State", s.datastore.connected ? "connected" : "not connected"],
        ["Error", s.datastore.error], ["Revision", String(s.datastore.revision)],
        ["Last contact", s.datastore.lastContact && clock(s.datastore.lastContact, now)],
        ["Data of", s.datastore.stale && s.datastore.asOf && clock(s.datastore.asOf, now)],
        ["Copy on disk", s.datastore.kept],
      ])),
      card("BGP", facts([
        ["AS", String(s.bgp.as)], ["Router ID", s.bgp.routerID], ["Port", String(s.bgp.listenPort)],
        ["Announced", plural(s.counts.announcements, "prefix", "prefixes")],
        ["Malformed messages", count(s.bgp.messagesMalformed)],
        ["Strangers refused", count(s.bgp.strangersRefused)],
        ["Cut off by limits", count(s.bgp.prefixLimitsReached)],
      ])),
      list("Withheld announcements", s.bgp.withheld, s.counts.withheld,
        (w) => [w.prefix, w.reason]),
      list("Next hops that cannot be used", s.fib.unusableNextHops, s.counts.unusableNextHops,
        (x) => [x.address + (x.pool ? ` for ${x.pool}` : ""), x.reason]),
      list("Routes that are not settled", s.fib.unsettled ?? [],
        (s.fib.unsettled ?? []).length + (s.fib.unsettledMore ?? 0),
        (r) => [r.prefix, r.reason || r.state]),
      list("Blocks without a route", s.unrouted, s.counts.unrouted, (u) => [u.prefix, u.reason]),
      list("Problems of Calico's data", s.problems, s.counts.problems,
        (p) => [p.resource ?? p.key, p.error]),
      s.external?.length ? card("External configuration", h("ul", { class: "lines" },
        ...s.external.map((e) => line(e.connected ? "ok" : "bad", e.name,
          Object.entries(e.states ?? {}).map(([k, n]) => `${count(n)} ${k.toLowerCase()}`)
            .join(", ") || (e.connected ? "connected" : "not connected"))))) : null,
    ].filter(Boolean));
  }

  return { root, update: (changed) => { if (changed.summary || changed.all) update(); } };
}

let cards = 0;

function card(title, content) {
  const id = "card-" + ++cards;
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), content);
}

function line(kind, name, text) {
  return h("li", {}, kindLabel(kind, name), h("span", {}, text));
}

// routes says how many there are, and which of them are not as they should be.
function routes(r) {
  const odd = ["failed", "unusable", "held", "shadowed", "drifted"].filter((k) => r[k] > 0);
  return [`${count(r.programmed)} of ${count(r.desired)} programmed`,
    ...odd.map((k) => `${count(r[k])} ${k}`)].join(", ");
}

function nothing(text) {
  return h("p", { class: "empty" }, text);
}

// list shows the first of what there is.
function list(title, shown, all, of) {
  if (shown.length === 0) return null;
  return card(`${title} (${count(all)})`, h("div", {},
    h("ul", { class: "pairs" }, ...shown.map((x) => {
      const [name, text] = of(x);
      return h("li", {}, h("b", {}, name), " ", text);
    })),
    all > shown.length ? h("p", { class: "note" }, `and ${count(all - shown.length)} more; `,
      h("code", {}, "vpp-route-agent status -o json"), " has all") : null));
}

function drain(d, now) {
  if (!d) return nothing("This node is not drained.");
  return h("div", {}, h("p", {}, kindLabel("warn", d.phase)), facts([
    ["Since", clock(d.since, now)], ["Until", clock(d.until, now)],
    ["Then", d.stay ? "it stays withdrawn until the drain is cancelled" : "the agent stops"],
    ["Ends when idle", d.untilIdle !== undefined && `at ${d.untilIdle} packets/s or fewer`],
    ["Packets", d.packetsPerSecond !== undefined && `${count(Math.round(d.packetsPerSecond))}/s`],
    ["Traffic", d.trafficUnknown], ["Not withdrawn", d.notWithdrawn], ["Not kept", d.notKept],
    ["Ending", d.ending],
  ]));
}
