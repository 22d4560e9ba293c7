// The view of explanations: how packets to a prefix are forwarded, or why not.

import { ask } from "./ask.js";
import { facts, h, kindLabel, mark, replace, setText, table } from "./dom.js";
import { age, clock, count } from "./format.js";
import { extras, hop, originOf } from "./routes.js";
import { routeMark } from "./state.js";

export function explainView(app) {
  let asked = 0;
  const text = h("input", {
    type: "search", id: "explain-text", placeholder: "an address or a prefix",
    autocomplete: "off", spellcheck: "false", maxlength: "64",
  });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const answer = h("div", { class: "explanation", "aria-live": "polite" });
  const submit = (e) => {
    e.preventDefault();
    const hash = "#explain?q=" + encodeURIComponent(text.value.trim());
    if (location.hash === hash) explain();
    else location.hash = hash;
  };
  const root = h("section", { class: "card", "aria-labelledby": "explain-title" },
    h("h2", { id: "explain-title" }, "Explain"),
    h("form", { class: "tools", role: "search", submit },
      h("label", { for: "explain-text" }, "Address or prefix"), text,
      h("button", { type: "submit" }, "Explain")),
    problem, answer);

  async function explain() {
    const prefix = text.value.trim();
    const mine = ++asked;
    problem.hidden = true;
    if (!prefix) {
      answer.classList.remove("waiting");
      replace(answer, [h("p", { class: "empty" }, "How are packets to an address forwarded, or ",
        "why not? The agent answers with what it, GoBGP and the data plane say now. Prefixes of ",
        h("a", { href: "#routes" }, "routes"), " lead here, too.")]);
      app.painted("explain");
      return;
    }
    answer.classList.add("waiting");
    const got = await ask("/page/explain?prefix=" + encodeURIComponent(prefix));
    if (mine !== asked) return;
    answer.classList.remove("waiting");
    problem.hidden = !got.problem;
    setText(problem, got.problem ?? "");
    replace(answer, got.problem ? [] : explanation(got, app.now()));
    app.painted("explain");
  }

  return {
    root,
    waits: true,
    query(q) {
      text.value = q.get("q") ?? "";
      explain();
    },
  };
}

export function explanation(e, now) {
  const kind = e.ok ? "ok" : "bad";
  return [
    h("p", { class: "health " + kind }, mark(kind), h("b", {}, e.asked), ` – ${e.verdict}`),
    h("ol", { class: "steps" }, ...e.steps.map((s) => h("li", { class: s.ok ? "ok" : "bad" },
      mark(s.ok ? "ok" : "bad"), h("b", {}, s.name), h("span", { class: "hidden" },
        s.ok ? "holds: " : "fails: "), h("span", {}, s.text)))),
    part("Owner", ownership(e.ownership)),
    part("Data plane", dataplane(e.dataplane)),
    part("Tunnels", tunnels(e.tunnels, now)),
    part("Routes", routes(e, now)),
    part("BGP paths", table([
      ["Prefix"], ["Peer"], ["Next hop", "mid"], ["Best"], ["Import", "mid"],
      ["Attributes", "wide"], ["Since", "wide"],
    ], e.paths.map((p) => [
      p.prefix, p.node ? `${p.peer} (${p.node})` : p.peer, p.nextHop,
      p.best ? kindLabel("ok", "best") : kindLabel(p.accepted ? "idle" : "bad",
        p.reason || (p.accepted ? "not best" : "rejected")),
      [p.import, ...p.operations].join(", "), attributes(p), clock(p.since, now),
    ]))),
    part("To peers", table([
      ["Peer"], ["Prefix", "mid"], ["Sent"], ["Rule", "mid"], ["Attributes", "wide"],
    ], e.exports.map((x) => [
      x.node ? `${x.peer} (${x.node})` : x.peer, x.prefix,
      sent(x),
      x.rule, attributes(x),
    ]))),
    part("Problems of Calico's data", e.problems.length ? h("ul", {}, ...e.problems.map((p) =>
      h("li", {}, `${p.resource ?? p.key}: ${p.error}`))) : null),
  ].filter(Boolean);
}

function sent(x) {
  if (!x.established) {
    return kindLabel("bad", "session down");
  }
  if (!x.accept) {
    return kindLabel("idle", "no");
  }
  return x.deferring ? kindLabel("idle", "after the restart") : kindLabel("ok", "yes");
}

// part is a section, or nothing where there is nothing to say.
function part(title, content) {
  return content ? h("section", {}, h("h3", {}, title), content) : null;
}

function ownership(o) {
  return facts([
    ["Pool", o.pool && o.pool + (o.poolDisabled ? " (disabled)" : "")],
    ["Block", o.block], ["Owner", o.owner], ["Affinity", o.affinity],
    ["Allocated", o.allocated && "yes"], ["Borrowed by", o.borrower], ["Workload", o.workload],
    ["Address of node", o.nodeAddress], ["Service range", o.service],
    ["Not exported", o.disableBGPExport && "the pool has disableBGPExport"],
    ["Not known", o.problem],
  ]);
}

function dataplane(d) {
  const m = d.match;
  const sent = (of) => `${count(of.packets)} packets (${count(of.bytes)} bytes)`;
  return facts([
    ["Longest match", m && (m.prefix ? m.prefix + (m.owner === "ours" ? ", ours" :
      ` of ${m.owner || "nobody known"}`) +
      (m.forwards === false ? ", which does not forward" : "") : // absent where it is not known
      "none")],
    ["Leaves by", m && hops(m.paths)],
    ["Our entry", d.entry], ["Not told", d.problem],
    ["Forwarded", d.packets === undefined ? null : sent(d)], ["Not counted", d.notCounted],
    ...(d.nextHops ?? []).map((p) => ["Sent to a next hop",
      h("span", {}, hop(p, {}, 0), `: ${sent(p)}, for whatever prefix`)]),
    ["Next hops not counted", d.nextHopsNotCounted !== d.notCounted && d.nextHopsNotCounted],
  ]);
}

function tunnels(all, now) {
  return table([["State"], ["Node"], ["Kind"], ["From", "mid"], ["To"], ["Interface", "mid"],
    ["Since", "wide"], ["Why"]],
  all.map((t) => [kindLabel(routeMark(t.state), t.state), t.node, t.encapsulation, t.outerSource,
    t.outerDestination, t.interface + (t.mtu ? `, MTU ${t.mtu}` : ""), age(t.since, now),
    t.reason]));
}

function routes(e, now) {
  if (e.routes.length + e.inside.length === 0) return null;
  return h("div", {}, ...e.routes.map((r) => h("div", { class: "claim" },
    h("p", {}, kindLabel(routeMark(r.state), r.state), " ", h("b", {}, r.prefix), extras(r),
      r.paths.length ? " via " : " ", hops(r.paths) ?? r.kind,
      ` from ${originOf(r)}`, r.since ? `, for ${age(r.since, now)}` : "",
      r.reason ? `: ${r.reason}` : ""),
    table([["Wanted by"], ["Chosen"], ["Next hop"], ["Reached by", "mid"], ["Why not"]],
      r.claims.flatMap((c) => (c.paths.length ? c.paths : [{ used: [] }]).map((p) => [
        `${c.origin} (distance ${c.distance})`, c.chosen ? "yes" : "no",
        way(p) ?? c.kind, [p.by, p.owner && `(${p.owner})`].filter(Boolean).join(" "),
        [...new Set([p.reason, c.reason])].filter(Boolean).join("; "),
      ])))),
  ), e.inside.length ? h("p", { class: "note" }, "Longer prefixes inside:") : null,
  table([["State"], ["Prefix"], ["Next hops"], ["Origin", "mid"], ["Since", "mid"], ["Why"]],
    e.inside.map((r) => [kindLabel(routeMark(r.state), r.state), r.prefix + extras(r),
      hops(r.paths) ?? r.kind, originOf(r), age(r.since, now), r.reason])),
  e.insideMore ? h("p", { class: "note" }, `and ${count(e.insideMore)} more`) : null);
}

// way shows the path that a source wants, and by what it goes if that is another; null for none.
function way(p) {
  const wanted = [p.nextHop, p.interface].filter(Boolean).join(" ");
  const used = hops(p.used);
  if (!used || !wanted) return used ?? (wanted || null);
  const told = p.used.some((u) => u.nextHop && u.nextHop === p.nextHop ||
    u.interface && u.interface === p.interface); // by IPIP the engine's own next hop leads
  return told ? used : h("span", {}, `${wanted} through `, used);
}

// hops shows the paths of a route; null without any.
function hops(paths) {
  return paths.length ? h("span", {}, ...paths.map((p, i) => hop(p, {}, i))) : null;
}

function attributes(p) {
  return [
    p.localPref !== undefined ? `LOCAL_PREF ${p.localPref}` : "",
    p.med !== undefined ? `MED ${p.med}` : "",
    p.asPath.length ? `AS_PATH ${p.asPath.join(" ")}` : "",
    p.communities.length ? `communities ${p.communities.join(" ")}` : "",
    p.nextHop && p.rule ? `NEXT_HOP ${p.nextHop}` : "",
    p.origin && p.origin !== "IGP" ? `ORIGIN ${p.origin}` : "",
    p.originator ? `ORIGINATOR_ID ${p.originator}` : "",
    p.clusterList?.length ? `CLUSTER_LIST ${p.clusterList.join(" ")}` : "",
    p.stale ? "stale" : "",
  ].filter(Boolean).join(", ");
}
