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

// short is as much of a name as the map has room for.
export function short(name) {
  return name.length > 18 ? name.slice(0, 17) + "…" : name;
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
