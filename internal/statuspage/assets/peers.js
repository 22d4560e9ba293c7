// The view of peers: the map and the table of sessions.

import { facts, h, kindLabel, mark, replace, s, setText } from "./dom.js";
import { age, clock, count, plural } from "./format.js";
import { layout, neighbour, shapes } from "./layout.js";
import {
  kindNames, kindOf, kinds, layerNames, matches, nameOf, shorten, tally, worstFirst,
} from "./state.js";

// rowsAtFirst bounds the table until more are asked for.
const rowsAtFirst = 100;

export function peersView(app) {
  const filter = h("input", {
    type: "search", id: "peer-filter", placeholder: "address, node, AS, error", autocomplete: "off",
    spellcheck: "false", input: () => { shown = rowsAtFirst; table(); },
  });
  const legend = h("ul", { class: "legend", "aria-label": "Show sessions that are" });
  const map = h("div", { class: "map" });
  const body = h("tbody");
  const total = h("p", { class: "total" });
  const heading = h("h2", { id: "sessions", tabindex: "-1" }, "Sessions");
  const more = h("button", { type: "button", click: () => { shown += 200; table(); } });
  const name = h("h2", { id: "peer-title" });
  const known = h("div");
  const routesBy = h("a", { click: () => details.close() }, "Routes by this peer");
  const details = h("dialog", { "aria-labelledby": "peer-title" }, name, known,
    h("p", { class: "tools" }, routesBy,
      h("button", { type: "button", autofocus: true, click: () => details.close() }, "Close")));
  const root = h("div", { class: "peers" },
    h("section", { class: "card", "aria-labelledby": "map-title" },
      h("h2", { id: "map-title" }, "Map"), legend, map,
      h("p", { class: "note" }, "The ", h("a", { href: "#sessions" }, "table of sessions"),
        " says the same.")),
    h("section", { class: "card", "aria-labelledby": "sessions" },
      heading,
      h("p", { class: "tools" }, h("label", { for: "peer-filter" }, "Filter"), filter, total),
      h("table", { class: "sessions" },
        h("thead", {}, h("tr", {}, ...[
          ["State"], ["Peer"], ["Node"], ["Type", "wide"], ["AS", "num"], ["Since", "mid"],
          ["Received", "num mid"], ["Accepted", "num wide"], ["Lost", "num wide"],
          ["Last error", "wide"],
        ].map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
        body),
      h("p", { class: "tools" }, more)),
    details);

  let shown = rowsAtFirst;
  let chosen = null; // the kind that the legend shows alone
  let open = null; // the peer of the dialog
  const rows = new Map();
  let drawn = [];
  let dots = new Map();

  const buttons = new Map(kinds.map((kind) => {
    const n = h("b");
    const button = h("button", {
      type: "button", "aria-pressed": "false", click: () => {
        chosen = chosen === kind ? null : kind;
        for (const [k, b] of buttons) b.button.setAttribute("aria-pressed", String(k === chosen));
        shown = rowsAtFirst;
        table();
      },
    }, mark(kind), n, " ", kindNames[kind][0].toLowerCase() + kindNames[kind].slice(1));
    legend.append(h("li", {}, button));
    return [kind, { button, n }];
  }));

  // table shows the rows that are asked for. The row that has the focus keeps it wherever it goes;
  // if it goes altogether, the heading gets it.
  function table() {
    const all = app.state.peers;
    let list = chosen ? all.filter((p) => kindOf(p) === chosen) : all;
    const text = filter.value.trim();
    if (text) list = list.filter((p) => matches(p, text));
    const first = worstFirst(list).slice(0, shown);
    const want = first.map((p) => row(p));
    const same = want.length === body.children.length &&
      want.every((r, i) => r === body.children[i]);
    if (!same) {
      const focused = body.contains(document.activeElement) ? document.activeElement : null;
      body.replaceChildren(...want);
      if (focused) {
        (focused.isConnected ? focused : heading).focus({ preventScroll: true });
      }
      const keep = new Set(first.map((p) => p.peer));
      for (const id of rows.keys()) if (!keep.has(id)) rows.delete(id);
    }
    setText(total, list.length === all.length ? count(all.length) :
      `${count(list.length)} of ${count(all.length)}`);
    more.hidden = list.length <= shown;
    setText(more, `Show more of ${count(list.length - Math.min(shown, list.length))}`);
  }

  function row(p) {
    let r = rows.get(p.peer);
    if (!r) {
      const cells = Array.from({ length: 10 }, () => h("td"));
      [3, 7, 8, 9].forEach((i) => cells[i].classList.add("wide"));
      [5, 6].forEach((i) => cells[i].classList.add("mid"));
      [4, 6, 7, 8].forEach((i) => cells[i].classList.add("num"));
      const name = h("button", { type: "button", class: "plain", click: () => show(p.peer) },
        p.peer);
      const error = h("span", { class: "narrow note" });
      cells[1].append(name, error);
      r = { element: h("tr", {}, ...cells), cells, error, kind: null, was: null };
      rows.set(p.peer, r);
    }
    if (r.was !== p) {
      r.was = p;
      const kind = kindOf(p);
      const label = p.established ? kindNames[kind].split(",")[0] : p.state;
      if (r.kind !== kind + label) r.cells[0].replaceChildren(kindLabel(kind, label));
      r.kind = kind + label;
      setText(r.cells[2], p.node ?? "");
      setText(r.cells[3], p.type);
      setText(r.cells[4], String(p.remoteAS));
      setText(r.cells[6], count(p.received));
      setText(r.cells[7], count(p.accepted));
      setText(r.cells[8], p.flaps ? count(p.flaps) : "");
      setText(r.cells[9], p.lastError ?? "");
      setText(r.error, (p.established ? p.problem : p.lastError) ?? "");
    }
    setText(r.cells[5], p.since ? age(p.since, app.now()) : "");
    return r.element;
  }

  // draw makes the map anew: when other peers are there.
  function draw() {
    const plan = layout(app.state.peers);
    const focused = map.contains(document.activeElement) ?
      drawn[Number(document.activeElement.dataset.i)]?.peer.peer : null;
    drawn = plan.places;
    const own = app.state.summary?.node ?? "this node";
    const short = shorten([own,
      ...drawn.filter((place) => place.label).map((place) => nameOf(place.peer))]);
    const lines = s("g", { class: "lines" });
    const shapesOf = s("g", { role: "group", "aria-label": "Peers; arrow keys lead from one to " +
      "the next", keydown: walk });
    const labels = s("g", { class: "labels", "aria-hidden": "true" });
    dots = new Map();
    plan.places.forEach((place, i) => {
      const id = place.peer.peer;
      const title = s("title");
      const dot = s("path", {
        tabindex: i === 0 ? "0" : "-1", role: "button", "fill-rule": "evenodd", "data-i": i,
        click: () => show(id),
      }, title);
      const line = s("line", {
        x1: plan.centre.x, y1: plan.centre.y, x2: round(place.x), y2: round(place.y),
      });
      lines.append(line);
      shapesOf.append(dot);
      if (place.label) labels.append(label(place.label, short(nameOf(place.peer))));
      dots.set(id, { dot, line, title, place, kind: null });
    });
    for (const c of plan.captions) {
      labels.append(s("text", { class: "caption", x: c.x + 4, y: c.y },
        `${layerNames[c.layer]} (${count(c.count)}` +
          (c.placed < c.count ? `, ${count(c.placed)} of them drawn)` : ")")));
    }
    labels.append(s("text", {
      class: "own", x: plan.centre.x, y: plan.centre.y + 30, "text-anchor": "middle",
    }, short(own)));
    map.replaceChildren(s("svg", {
      viewBox: `0 0 ${plan.width} ${Math.max(plan.height, 80)}`, class: plan.places.length > 100 ?
        "many" : "few", role: "group", "aria-labelledby": "map-title",
    }, lines, s("circle", { class: "self", cx: plan.centre.x, cy: plan.centre.y, r: 13 }),
    shapesOf, labels));
    app.state.peers.forEach(paint);
    if (dots.has(focused)) move(dots.get(drawn[0].peer.peer).dot, dots.get(focused).dot);
  }

  // move leads the focus from one peer on the map to another.
  function move(from, to) {
    from.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  }

  // paint shows the state of a peer on the map.
  function paint(p) {
    const d = dots.get(p.peer);
    if (!d) return; // the map has no place for it
    const kind = kindOf(p);
    const says = `${nameOf(p)}${p.node ? ", " + p.peer : ""}: ${kindNames[kind]}` +
      (p.established ? "" : ` (${p.state})`);
    if (d.says === says) return;
    d.says = says;
    d.dot.setAttribute("aria-label", says);
    d.title.textContent = says;
    if (d.kind === kind) return;
    d.kind = kind;
    // of very many, those that are not up must be seen at a glance
    const r = d.place.r * (d.place.r < 6 && kind !== "up" ? 1.6 : 1);
    d.dot.setAttribute("d", shapes[kind](d.place.x, d.place.y, r));
    d.dot.setAttribute("class", kind);
    d.line.setAttribute("class", kind);
  }

  function walk(event) {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const from = Number(event.target.dataset.i);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      show(drawn[from].peer.peer);
      return;
    }
    if (!by[event.key]) return;
    event.preventDefault();
    const to = neighbour(drawn, from, ...by[event.key]);
    move(event.target, dots.get(drawn[to].peer.peer).dot);
  }

  function show(id) {
    const peer = app.state.peers[app.state.index.get(id)];
    if (!peer) return; // it is not configured any more
    open = peer;
    setText(name, nameOf(open));
    routesBy.href = "#routes?q=" + encodeURIComponent(open.address);
    describe();
    details.showModal();
  }

  // describe fills the dialog with what is known of the peer that it is about.
  function describe() {
    const p = app.state.peers[app.state.index.get(open.peer)];
    if (!p) return; // it is not configured any more
    const kind = kindOf(p);
    replace(known, facts([
      ["State", h("span", {}, kindLabel(kind), p.established ? "" : ` (${p.state})`)],
      ["Address", p.peer], ["Node", p.node],
      ["Type", p.type + (p.reflector ? ", route reflector" : "")],
      ["Configured by", p.source], ["AS", `${p.remoteAS} (ours ${p.localAS})`],
      ["Router ID", p.routerID],
      ["Since", p.since && `${clock(p.since, app.now())} (${age(p.since, app.now())})`],
      ["Paths", `${count(p.received)} received, ${count(p.accepted)} accepted, ` +
        `${count(p.advertised)} advertised`],
      ["UPDATEs", `${count(p.updatesReceived)} received, ${count(p.updatesSent)} sent`],
      ["Lost", p.flaps ? plural(p.flaps, "time") : "never"],
      ["Opened by", p.passive ? "the peer" : "either side"],
      ["Last error", p.lastError],
    ]));
  }
  details.addEventListener("close", () => { open = null; });

  return {
    root,
    update(changed) {
      if (changed.all) draw();
      else changed.peers.forEach(paint);
      const n = tally(app.state.peers);
      for (const [kind, b] of buttons) setText(b.n, count(n[kind]));
      table();
      if (open) describe();
    },
    tick: table,
  };
}

function label(at, text) {
  const x = round(at.x);
  const y = round(at.y);
  return s("text", {
    x, y, dy: "0.35em", "text-anchor": at.anchor,
    transform: at.turn ? `rotate(${round(at.turn)} ${x} ${y})` : null,
  }, text);
}

function round(v) {
  return Math.round(v * 10) / 10;
}
