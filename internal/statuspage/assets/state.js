// What the stream has told so far. Pure: no function here touches the document.

// empty is the state before the first event.
export function empty() {
  return { summary: null, peers: [], index: new Map(), now: 0, looked: 0 };
}

// take changes state by an event of the stream and returns what it has changed.
export function take(state, event) {
  const changed = { summary: false, peers: [], all: false };
  state.now = event.now;
  state.looked = event.looked;
  if (event.summary) {
    state.summary = event.summary;
    changed.summary = true;
  }
  if (event.all) {
    state.peers = event.peers;
    state.index = new Map(event.peers.map((p, i) => [p.peer, i]));
    changed.all = true;
  } else {
    for (const p of event.peers ?? []) {
      state.peers[state.index.get(p.peer)] = p;
      changed.peers.push(p);
    }
  }
  return changed;
}

// kinds are the states of a session as the page shows them, the worst first.
export const kinds = ["down", "handshake", "receiving", "up"];

export const kindNames = {
  down: "Down",
  handshake: "Opening",
  receiving: "Up, no End-of-RIB yet",
  up: "Up",
};

// kindOf says how the page shows a session.
export function kindOf(peer) {
  if (peer.established) return peer.endOfRIB ? "up" : "receiving";
  return peer.state === "OpenSent" || peer.state === "OpenConfirm" ? "handshake" : "down";
}

// tally counts the peers of each kind.
export function tally(peers) {
  const count = { down: 0, handshake: 0, receiving: 0, up: 0 };
  for (const p of peers) count[kindOf(p)]++;
  return count;
}

// layerOf says where the map has a peer.
export function layerOf(peer) {
  if (peer.type === "local workload") return "workloads";
  if (peer.reflector) return "reflectors";
  return peer.node ? "nodes" : "outside";
}

export const layerNames = {
  outside: "Outside the cluster",
  reflectors: "Route reflectors",
  nodes: "Nodes",
  workloads: "Workloads",
};

// nameOf is how people call a peer.
export function nameOf(peer) {
  return peer.node || peer.peer;
}

// longest is how many letters of a name the map has room for.
export const longest = 18;

// cuts are how many letters of a longer name's beginning are left, beside those of its end; the
// first three read best.
const cuts = [8, longest - 1, 0, ...Array.from({ length: longest }, (_, i) => i)];

// shorten says what the map calls each of the names. A name is cut where fewest others look the
// same then: some differ at their ends, as k8s-worker-pool-a-1, and others at their beginnings, as
// ip-10-0-1-2.eu-central-1.compute.internal.
export function shorten(names) {
  const all = [...new Set(names)];
  const best = new Map();
  for (const from of cuts) {
    const labels = all.map((name) => cut(name, from));
    const alike = new Map();
    for (const text of labels) alike.set(text, (alike.get(text) ?? 0) + 1);
    all.forEach((name, i) => {
      const n = alike.get(labels[i]);
      if (!(best.get(name)?.alike <= n)) best.set(name, { text: labels[i], alike: n });
    });
  }
  return (name) => best.get(name).text;
}

function cut(name, from) {
  if (name.length <= longest) return name;
  return name.slice(0, from) + "…" + name.slice(name.length - (longest - 1 - from));
}

// matches reports whether all words are found in what the table shows of a peer.
export function matches(peer, text) {
  const shown = [
    peer.peer, peer.node, peer.type, peer.state, "AS" + peer.remoteAS, peer.lastError,
    kindNames[kindOf(peer)],
  ].join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => shown.includes(word));
}

// worstFirst sorts peers by kind, and keeps their order within each.
export function worstFirst(peers) {
  const rank = new Map(kinds.map((k, i) => [k, i]));
  return peers.map((p, i) => [rank.get(kindOf(p)), i, p])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((x) => x[2]);
}

// wrongs are what keeps a node from being ready, and then what else is not as it should be.
export function wrongs(summary) {
  const failing = summary.conditions.filter((c) => !c.ok);
  const told = (d) => failing.some((c) => c.name === d.condition && c.reason === d.reason);
  return [
    ...failing.map((c) => `${c.name}: ${c.message ?? inWords(c.reason)}`),
    ...summary.degraded.filter((d) => !told(d)).map((d) => `${d.condition}: ${inWords(d.reason)}`),
  ];
}

// inWords shows a reason for programs to people.
export function inWords(reason) {
  return reason.replaceAll("_", " ");
}

// routeMark is the mark of a route's state.
export function routeMark(state) {
  switch (state) {
    case "programmed":
      return "ok";
    case "failed":
    case "drifted":
    case "unusable":
      return "bad";
    case "pending":
    case "held":
    case "deleting":
      return "warn";
  }
  return "idle";
}
