package reflector

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

// ready gives every agent what it must have applied.
func ready(w *World) *World {
	for n, a := range w.Agents {
		a.Status.Digest = w.digest(n)
		w.Agents[n] = a
	}
	return w
}

// decided is a decision in a few words.
func decided(d Decision) string {
	switch {
	case d.Step != nil:
		return "step: " + d.Step.Does
	case d.Wait == nil:
		return "done: " + d.Done
	case d.Wait.Person:
		return "person: " + d.Wait.What
	case d.Wait.Ask != nil:
		return "ask: " + d.Wait.What
	}
	return "wait: " + d.Wait.What
}

// say has every agent answer twice that nothing would be lost.
func say(w *World, q Question) { saying(q, 2, "", 0)(w) }

// saying has every agent answer twice with so many copies, but one node with so many others.
func saying(q Question, copies int, odd string, oddCopies int) func(*World) {
	return func(w *World) {
		for n, a := range w.Agents {
			yes := Answer{
				Question: q, Digest: w.digest(n), IPv4: Change{Prefixes: 9, FewestCopies: copies},
			}
			if n == odd {
				yes.IPv4.FewestCopies = oddCopies
			}
			a.Answers = append(a.Answers, yes, yes)
			w.Agents[n] = a
		}
	}
}

// lagging has a node not have applied the last change.
func lagging(node string) func(*World) {
	return func(w *World) {
		a := w.Agents[node]
		a.Status.Digest = "old"
		w.Agents[node] = a
	}
}

// both is what two changes make of a world.
func both(first, second func(*World)) func(*World) {
	return func(w *World) { first(w); second(w) }
}

// runsBIRD gives a node BIRD instead of an agent.
func runsBIRD(w *World, node string, b Bird) {
	delete(w.Agents, node)
	w.Birds = map[string]Bird{node: b}
}

// answersOf are as many answers of a node's BIRD: its sessions are up, and each peer has sent the
// prefixes of all, node i's by its own address.
func (w *World) answersOf(node string, n int) (all []calico.NodeStatus) {
	for range n {
		var s calico.NodeStatus
		first := map[netip.Prefix]bool{}
		for _, p := range w.peersOf(node) {
			s.Peers = append(s.Peers, calico.NodeStatusPeer{
				Address: p.Address, Type: peerType(p.Scope), Established: true,
			})
			for i, owner := range w.names {
				if owner == node {
					continue
				}
				s.Routes = append(s.Routes, calico.NodeStatusRoute{
					Prefix: prefixOf(i), Interface: "eth0", Peer: p.Address,
					Gateway: w.snapshot.Nodes[owner].IPv4.Addr().String(), FIB: !first[prefixOf(i)],
				})
				first[prefixOf(i)] = true
			}
		}
		all = append(all, s)
	}
	return all
}

// TestNext: each line is a world and what is decided in it. The cluster has four nodes.
func TestNext(t *testing.T) {
	const (
		id    = "224.0.0.1"
		label = "vpp-route-agent/route-reflector"
		off   = `{"nodeToNodeMeshEnabled":false}`
	)
	ours := func(n *testNode, turn int) {
		n.clusterID, n.labels = id, map[string]string{label: "true"}
		n.annotations = map[string]string{roleNote: strconv.Itoa(turn)}
	}
	peer := func() Object {
		value, err := newPeer(peerName, "all()", labelled(label), nil, start)
		if err != nil {
			t.Fatal(err)
		}
		return Object{peerKey, value, 8}
	}()
	noted := func(spec string) Object { // our annotation
		o := configuration(spec)
		o.Value = []byte(strings.Replace(string(o.Value), `"uid"`,
			`"annotations":{"`+meshNote+`":"{}"},"uid"`, 1))
		return o
	}
	offByUs := noted(off)
	brokenNode := Object{nodeKey("odd"), []byte(`{"spec":7}`), 6}
	toReflectors, toMesh := Goal{Mode: Reflectors, Since: start}, Goal{Mode: Mesh, Since: start}
	late := Goal{Mode: Reflectors, Since: start.Add(-time.Hour)}
	all := func(n []testNode) {
		for i := range n[:3] {
			ours(&n[i], i+1)
		}
	}
	cordoned := func(n []testNode) { // a, b and c have the role, and no node shall have it
		all(n)
		for i := range n {
			if n[i].annotations == nil {
				n[i].annotations = map[string]string{}
			}
			n[i].annotations[cordonNote] = "disk"
		}
	}
	steady := Goal{Mode: Reflectors} // it was reached
	replaced := func(n []testNode) { // b by d
		all(n)
		ours(&n[3], 4)
		n[1].annotations[cordonNote] = "disk"
	}
	for _, tc := range []struct {
		name  string
		goal  Goal
		nodes func([]testNode)
		more  []Object
		world func(*World)
		want  string
	}{
		{"observe", Goal{}, nil, nil, nil, "done: observing: nothing is written"},
		{"paused", Goal{Mode: Reflectors, Paused: true}, nil, nil, nil, "person: paused"},
		{"a configuration that is wrong", Goal{Mode: Reflectors, Config: Config{Max: 1}}, nil, nil,
			nil, "person: configuration: max: 1 is less than min, 3"},
		{"begin", toReflectors, nil, nil, nil, "step: create BGPPeer(" + peerName + ")"},
		{"a topology to come",
			Goal{Mode: Reflectors, Config: Config{Topology: "hierarchical"}}, nil, nil, nil,
			`person: configuration: topology: "hierarchical" is not built yet; use ` +
				`"single", "quorum" or "multi"`},
		{"a node lags", toReflectors, nil, nil, func(w *World) {
			w.Agents["b"] = Agent{
				Status: Status{Format: StatusFormat, Version: "v1", Digest: "old"},
			}
		}, "wait: the last change is not applied at b"},
		{"another version", toReflectors, nil, nil, func(w *World) {
			w.Agents["b"] = Agent{
				Status: Status{Format: StatusFormat, Version: "v2"},
			}
		}, "wait: no agent of this version answers for b"},
		{"a session is down", toReflectors, nil, nil, func(w *World) {
			a := w.Agents["b"]
			a.Status.Down = []Down{{"c", start}}
			w.Agents["b"] = a
		}, "wait: the session between b and c is down"},
		{"BIRD", toReflectors, nil, nil, func(w *World) { delete(w.Agents, "d") },
			"person: Node(a) has workloads: their flows with d are lost for about 2 s, until " +
				"BIRD has its session again, when it becomes the first reflector or stops " +
				"being the last"},
		{"BIRD, accepted", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) { delete(w.Agents, "d") },
			"wait: no answer yet from calico-node of d"},
		{"BIRD that does not answer", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) { runsBIRD(w, "d", Bird{Silent: true}) },
			"wait: neither an agent nor calico-node answers for d"},
		{"BIRD, accepted and unseen, is asked first", Goal{Mode: Reflectors, AcceptLoss: true,
			AcceptUnseen: true}, nil, nil, func(w *World) { delete(w.Agents, "d") },
			"wait: no answer yet from calico-node of d"},
		{"BIRD, accepted and unseen", Goal{Mode: Reflectors, AcceptLoss: true, AcceptUnseen: true},
			nil, nil, func(w *World) { runsBIRD(w, "d", Bird{Silent: true}) },
			"step: create BGPPeer(" + peerName + ")"},
		{"BIRD that answers", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) { runsBIRD(w, "d", Bird{Answers: w.answersOf("d", 2)}) },
			"step: create BGPPeer(" + peerName + ")"},
		{"BIRD that has answered once", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) { runsBIRD(w, "d", Bird{Answers: w.answersOf("d", 1)}) },
			"wait: no answer yet from calico-node of d"},
		{"BIRD whose answer lacks the family", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) {
				answers := w.answersOf("d", 2)
				answers[1].Routes = nil
				runsBIRD(w, "d", Bird{Answers: answers})
			}, "wait: neither an agent nor calico-node answers for d"},
		{"BIRD that lacks a session", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) {
				answers := w.answersOf("d", 2)
				answers[1].Peers = answers[1].Peers[1:]
				runsBIRD(w, "d", Bird{Answers: answers})
			}, "wait: the last change is not applied at d"},
		{"BIRD that has one too many", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) {
				answers := w.answersOf("d", 2)
				more := answers[1].Peers[0]
				more.Type = calico.PeerTypeNode
				answers[1].Peers = append(answers[1].Peers, more)
				runsBIRD(w, "d", Bird{Answers: answers})
			}, "wait: the last change is not applied at d"},
		{"BIRD that has one with a router", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) {
				answers := w.answersOf("d", 2)
				answers[1].Peers = append(answers[1].Peers, calico.NodeStatusPeer{
					Address: netip.MustParseAddr("192.0.2.1"), Type: calico.PeerTypeGlobal,
					Established: true,
				})
				runsBIRD(w, "d", Bird{Answers: answers})
			}, "step: create BGPPeer(" + peerName + ")"},
		{"a session of BIRD that is down", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) {
				answers := w.answersOf("d", 2)
				answers[1].Peers[1].Established = false
				runsBIRD(w, "d", Bird{Answers: answers})
			}, "wait: the session between d and b is down"},
		{"a session with BIRD that is down", Goal{Mode: Reflectors, AcceptLoss: true}, nil, nil,
			func(w *World) {
				runsBIRD(w, "d", Bird{Answers: w.answersOf("d", 2)})
				a := w.Agents["b"]
				a.Status.Down = []Down{{"d", start}}
				w.Agents["b"] = a
			}, "wait: the session between b and d is down"},
		{"an agent that has lost etcd is not accepted unseen",
			Goal{Mode: Reflectors, AcceptLoss: true, AcceptUnseen: true}, nil, nil,
			func(w *World) {
				delete(w.Agents, "c")
				w.Agents["d"] = Agent{Status: w.Agents["d"].Status, Lost: start.Add(-time.Hour)}
			}, "wait: no agent of this version answers for d"},
		{"more sessions are down than are listed", toReflectors, nil, nil, func(w *World) {
			a := w.Agents["b"]
			a.Status.Wanted, a.Status.Up = 3, 1
			w.Agents["b"] = a
		}, "wait: 2 sessions of b are down"},
		{"BIRD beside an agent without workloads", toReflectors, nil, nil, func(w *World) {
			delete(w.Agents, "d")
			a := w.Agents["b"]
			a.Status.Dataplane = "none"
			w.Agents["b"] = a
		}, "wait: no answer yet from calico-node of d"},
		{"etcd was away", toReflectors, nil, nil,
			func(w *World) { w.Connected = start.Add(-time.Second) },
			"wait: the datastore has been reachable for only 1s of the 1m0s that agents have to " +
				"return"},
		{"agents lost at once", toReflectors, nil, nil, func(w *World) {
			for _, n := range []string{"a", "b"} {
				w.Agents[n] = Agent{Lost: start}
			}
		}, "wait: 2 of 4 agents were lost within 1m0s"},
		{"an AS of its own", toReflectors, func(n []testNode) { n[3].as = 65001 }, nil, nil,
			"person: Node(a) is in AS 64512 and Node(d) in AS 65001: reflectors need one AS; N"},
		{"a person's BGPPeer in the way", toReflectors, nil,
			[]Object{bgpPeer("mine", `{"nodeSelector":"all()","peerSelector":"all()"}`)}, nil,
			"person: Node(a) has its session with Node(b) from BGPPeer(mine) instead of BGPPeer("},
		{"one that one end alone has", toReflectors, nil, []Object{bgpPeer("mine",
			`{"node":"d","peerIP":"10.0.0.1","asNumber":64512,"reversePeering":"Manual"}`)}, nil,
			"person: Node(d) has its session with Node(a) from BGPPeer(mine) instead of BGPPeer("},
		{"a person's BGPPeer that is not", toReflectors, nil,
			[]Object{bgpPeer("tor", `{"peerIP":"192.0.2.1","asNumber":65000}`)}, nil,
			"step: create BGPPeer(" + peerName + ")"},
		{"our name", toReflectors, nil, []Object{bgpPeer(peerName, `{"peerSelector":"all()"}`)},
			nil, "person: BGPPeer(" + peerName + "): it belongs to a person"},
		{"our label", toReflectors,
			func(n []testNode) { n[1].labels = map[string]string{label: "true"} }, nil, nil,
			"person: Node(b): a person gave it the label " + label},
		{"our reflector, edited", toReflectors, func(n []testNode) {
			ours(&n[0], 1)
			n[0].clusterID = "1.1.1.1"
		}, []Object{peer}, nil,
			"person: Node(a): its label or cluster ID is not the configured one"},
		{"or its label", toReflectors, func(n []testNode) {
			ours(&n[0], 1)
			delete(n[0].labels, label)
		}, []Object{peer}, nil,
			"person: Node(a): its label or cluster ID is not the configured one"},
		{"two nodes with one address", toReflectors, func(n []testNode) { n[3].v4 = n[2].v4 },
			nil, nil, "person: Node(a) would have no session with Node(d)"},
		{"the mesh, turned off by hand", toReflectors, nil, []Object{configuration(off)}, nil,
			"person: BGPConfiguration(default): a person turned the mesh off"},
		{"the mesh, turned on by hand", toReflectors, all, []Object{peer, noted(
			`{"nodeToNodeMeshEnabled":true}`)}, nil,
			"person: BGPConfiguration(default): a person turned the mesh on"},
		{"a person's reflector beside groups", Goal{Mode: Reflectors, Since: start,
			Config: Config{Topology: Quorum}}, func(n []testNode) { n[3].clusterID = "1.1.1.1" },
			nil, nil, "person: Node(d): a person made it a reflector, beside which there is no " +
				"topology quorum"},
		{"a password that came later", toReflectors, nil, []Object{peer, configuration(
			`{"nodeMeshPassword":{"secretKeyRef":{"name":"a","key":"b"}}}`)}, nil,
			"person: BGPPeer(" + peerName + "): a person changed it, or the password or restart "},
		{"what cannot be read", toReflectors, nil, []Object{bgpPeer("odd", `7`)}, nil,
			"person: BGPPeer(odd): spec"},
		{"a Node that cannot be read", toReflectors, nil, []Object{peer, brokenNode}, nil,
			"person: Node(odd): spec"},
		{"but a third reflector still comes", Goal{Mode: Reflectors}, func(n []testNode) {
			ours(&n[0], 1)
			ours(&n[1], 2)
		}, []Object{peer, offByUs, brokenNode}, nil, "ask: not all routes from reflector b"},
		{"datastoreReady", toReflectors, nil, []Object{{calico.Key{
			Kind: calico.KindClusterInformation, Name: "default",
		}, []byte(`{"spec":{"datastoreReady":false}}`), 7}}, nil,
			"person: ClusterInformation(default): datastoreReady is false"},
		{"our turn, edited", toReflectors, func(n []testNode) { ours(&n[0], 0) },
			[]Object{peer}, nil,
			"person: Node(a): metadata.annotations[" + roleNote + "] is no positive number"},
		{"beside a person's reflector and its BGPPeer", toReflectors, func(n []testNode) {
			n[3].clusterID, n[3].labels = "1.1.1.1", map[string]string{"rr": "mine"}
		}, []Object{bgpPeer("mine", `{"nodeSelector":"all()","peerSelector":"rr == 'mine'"}`)}, nil,
			"step: create BGPPeer(" + peerName + ")"},
		{"the first", toReflectors, nil, []Object{peer}, nil,
			"step: make Node(a) a reflector: the oldest of the nodes without a zone"},
		{"the second waits for the first", toReflectors, func(n []testNode) { ours(&n[0], 1) },
			[]Object{peer}, nil, "ask: not all routes from reflector a at a, b, c, d"},
		{"and for who has not seen that there is one", toReflectors,
			func(n []testNode) { ours(&n[0], 1) }, []Object{peer},
			both(saying(Question{Cover: "a"}, 1, "", 0), lagging("c")),
			"wait: the last change is not applied at c"},
		{"for long, so back", late, func(n []testNode) { ours(&n[0], 1) }, []Object{peer}, nil,
			"step: undo: not all routes from reflector a at a, b, c, d, for 10m0s, before the " +
				"step: make Node(b) a reflector: the oldest of the nodes without a zone"},
		{"not by the clock of who set the goal", late, func(n []testNode) { ours(&n[0], 1) },
			[]Object{peer}, func(w *World) { w.GoalSeen = start.Add(-2 * time.Minute) },
			"ask: not all routes from reflector a at a, b, c, d"},
		{"not for as long as etcd has answered", late, func(n []testNode) { ours(&n[0], 1) },
			[]Object{peer}, func(w *World) { w.Connected = start.Add(-2 * time.Minute) },
			"ask: not all routes from reflector a at a, b, c, d"},
		{"back", Goal{Mode: Reflectors, Undo: "a reason"}, func(n []testNode) { ours(&n[0], 1) },
			[]Object{peer}, nil, "ask: not all routes without reflector a at a, b, c, d"},
		{"an undo is not undone", Goal{Mode: Reflectors, Since: late.Since, Undo: "a reason"},
			func(n []testNode) { ours(&n[0], 1) }, []Object{peer}, nil,
			"ask: not all routes without reflector a at a, b, c, d"},
		{"undone", Goal{Mode: Reflectors, Undo: "a reason"}, nil, nil, nil,
			"done: mesh; undone: a reason"},
		{"at rest in the mesh no agent is missed", Goal{Mode: Mesh}, nil, nil, func(w *World) {
			for name, a := range w.Agents {
				a.Lost = start.Add(-time.Hour)
				w.Agents[name] = a
			}
		}, "done: mesh"},
		{"undone, where the mesh never went", Goal{Mode: Mesh, From: Mesh, Undo: "a reason"}, nil,
			nil, nil, "done: mesh; undone: a reason"},
		{"all are, so the mesh goes", toReflectors, all, []Object{peer}, nil,
			"ask: not all routes without the mesh at a, b, c, d"},
		{"not while a node lags", toReflectors, all, []Object{peer},
			both(saying(Question{Mesh: true}, 2, "", 0), lagging("c")),
			"wait: the last change is not applied at c"},
		{"with every route twice", toReflectors, all, []Object{peer},
			saying(Question{Mesh: true}, 2, "", 0), "step: turn the mesh off"},
		{"a client that has one once", toReflectors, all, []Object{peer},
			saying(Question{Mesh: true}, 2, "d", 1), "ask: not all routes without the mesh at d"},
		{"a reflector has it from the node itself alone", toReflectors, all, []Object{peer},
			saying(Question{Mesh: true}, 2, "c", 1), "step: turn the mesh off"},
		{"of one reflector nobody has a second copy",
			Goal{Mode: Reflectors, Config: Config{Min: 1, Max: 1}, Since: start},
			func(n []testNode) { ours(&n[0], 1) }, []Object{peer},
			saying(Question{Mesh: true}, 1, "", 0), "step: turn the mesh off"},
		{"of two each client has one, and one may leave",
			Goal{Mode: Reflectors, Config: Config{Min: 1, Max: 1}, Since: start},
			func(n []testNode) { ours(&n[0], 1); ours(&n[1], 2) }, []Object{peer, offByUs},
			both(saying(Question{Cover: "a"}, 1, "", 0),
				saying(Question{Leave: "b", Label: label}, 1, "", 0)),
			"step: Node(b) stops being a reflector: there are enough without it"},
		{"of three not with a single copy left",
			Goal{Mode: Reflectors, Config: Config{Min: 2, Max: 2}, Since: start}, all,
			[]Object{peer, offByUs}, both(saying(Question{Cover: "b"}, 1, "", 0),
				saying(Question{Leave: "c", Label: label}, 2, "d", 1)),
			"ask: not all routes without reflector c at d"},
		{"the mesh is off: do the reflectors cover all?", toReflectors, all,
			[]Object{peer, offByUs}, nil, "ask: not all routes from reflector c at c, d"},
		{"it is not verified while a node lags", toReflectors, all, []Object{peer, offByUs},
			both(saying(Question{Cover: "c"}, 1, "", 0), lagging("d")),
			"wait: the last change is not applied at d"},
		{"once they did nobody is asked", Goal{Mode: Reflectors}, all, []Object{peer, offByUs},
			nil, "done: reflectors a, b, c"},
		{"nor when a node joins", Goal{Mode: Reflectors}, all, []Object{peer, offByUs},
			func(w *World) {
				w.Agents["d"] = Agent{Status: Status{Format: StatusFormat, Version: "v1"}}
			}, "done: reflectors a, b, c"},
		{"and a gate that is shut later has no limit", Goal{Mode: Reflectors}, func(n []testNode) {
			all(n)
			n[1].annotations[cordonNote] = "disk"
		}, []Object{peer, offByUs}, func(w *World) { say(w, Question{Leave: "c", Label: label}) },
			"ask: not all routes from reflector c at c, d"},
		{"the one that replaces another covers all nodes first", toReflectors, replaced,
			[]Object{peer, offByUs}, nil, "ask: not all routes from reflector d at d"},
		{"then nothing is missing without the other", toReflectors, replaced,
			[]Object{peer, offByUs}, func(w *World) { say(w, Question{Cover: "d"}) },
			"ask: not all routes without reflector b at a, b, c, d"},
		{"then the other goes", toReflectors, replaced, []Object{peer, offByUs}, func(w *World) {
			say(w, Question{Cover: "d"})
			say(w, Question{Leave: "b", Label: label})
		}, "step: Node(b) stops being a reflector: it is cordoned: disk"},
		{"unless a node has not applied that yet", toReflectors, replaced,
			[]Object{peer, offByUs}, func(w *World) {
				say(w, Question{Cover: "d"})
				say(w, Question{Leave: "b", Label: label})
				a := w.Agents["c"]
				a.Status.Digest = "old"
				w.Agents["c"] = a
			}, "wait: the last change is not applied at c"},
		{"of three that are cordoned one goes", steady, cordoned, []Object{peer, offByUs},
			both(saying(Question{Cover: "b"}, 1, "", 0),
				saying(Question{Leave: "c", Label: label}, 2, "", 0)),
			"step: Node(c) stops being a reflector: it is cordoned: disk"},
		{"and two stay", steady, func(n []testNode) {
			cordoned(n)
			n[2].clusterID, n[2].labels = "", nil
			delete(n[2].annotations, roleNote)
		}, []Object{peer, offByUs}, nil, "done: reflectors a, b"},
		{"until another node can have the role", steady, func(n []testNode) {
			cordoned(n)
			delete(n[3].annotations, cordonNote)
		}, []Object{peer, offByUs}, both(saying(Question{Cover: "a"}, 1, "", 0),
			saying(Question{Leave: "c", Label: label}, 2, "", 0)),
			"step: make Node(d) a reflector: replaces a in its zone"},
		{"one that drains goes before one that is cordoned", steady, cordoned,
			[]Object{peer, offByUs}, func(w *World) {
				a := w.Agents["a"]
				a.Status.Draining = true
				w.Agents["a"] = a
				saying(Question{Cover: "c"}, 1, "", 0)(w)
				saying(Question{Leave: "a", Label: label}, 2, "", 0)(w)
			}, "step: Node(a) stops being a reflector: it is cordoned: disk"},
		{"the last one stays", steady, func(n []testNode) {
			cordoned(n)
			ours(&n[0], 1)
			for i := range n[1:3] {
				n[i+1].clusterID, n[i+1].labels = "", nil
				delete(n[i+1].annotations, roleNote)
			}
			n[0].annotations[cordonNote] = "disk"
		}, []Object{peer, offByUs}, nil, "done: reflectors a"},
		{"with the mesh on, no migration ends with nodes that are cordoned", toReflectors, cordoned,
			[]Object{peer}, nil, "person: no node can be a reflector"},
		{"without the mesh the newest that covers too little goes", late, all,
			[]Object{peer, offByUs}, func(w *World) { say(w, Question{Leave: "c", Label: label}) },
			"step: Node(c) stops being a reflector: it did not cover all nodes within 10m0s"},
		{"unless something would be missing without it", late, all, []Object{peer, offByUs},
			saying(Question{Leave: "c", Label: label}, 2, "d", 1),
			"ask: not all routes without reflector c at d"},
		{"to the mesh", toMesh, all, []Object{peer, offByUs}, nil, "step: turn the mesh on"},
		{"also while a node lags", toMesh, all, []Object{peer, offByUs}, lagging("b"),
			"step: turn the mesh on"},
		{"or is away", toMesh, all, []Object{peer, offByUs}, func(w *World) {
			w.Agents["d"] = Agent{Lost: start.Add(-time.Hour)}
		}, "step: turn the mesh on"},
		{"or all but one are", toMesh, all, []Object{peer, offByUs}, func(w *World) {
			for _, n := range []string{"b", "c", "d"} {
				w.Agents[n] = Agent{Lost: start}
			}
		}, "step: turn the mesh on"},
		{"or etcd was", toMesh, all, []Object{peer, offByUs},
			func(w *World) { w.Connected = start }, "step: turn the mesh on"},
		{"what follows waits for all", toMesh, all, []Object{peer}, func(w *World) {
			w.Agents["d"] = Agent{Lost: start.Add(-time.Hour)}
		}, "wait: no agent of this version answers for d"},
		{"and for the last change", toMesh, all, []Object{peer}, lagging("b"),
			"wait: the last change is not applied at b"},
		{"the last in goes first", toMesh, all, []Object{peer}, nil,
			"ask: not all routes without reflector c at a, b, c, d"},
		{"whatever order their names have", toMesh, func(n []testNode) {
			ours(&n[0], 9)
			ours(&n[1], 2)
			ours(&n[2], 10)
		}, []Object{peer}, nil, "ask: not all routes without reflector c at a, b, c, d"},
		{"also one that has lost its address", toMesh, func(n []testNode) {
			ours(&n[0], 1)
			n[0].v4 = ""
		}, []Object{peer}, nil, "ask: not all routes without reflector a at b, c, d"},
		{"the sessions of the mesh come first", toMesh, all, []Object{peer}, func(w *World) {
			a := w.Agents["b"]
			a.Status.Down = []Down{{"d", start}}
			w.Agents["b"] = a
		}, "wait: the session between b and d is down"},
		{"the last of all has workloads", toMesh, func(n []testNode) { ours(&n[0], 1) },
			[]Object{peer}, func(w *World) { delete(w.Agents, "d") },
			"person: Node(a) has workloads: their flows with d are lost"},
		{"the agent without workloads is the last",
			Goal{Mode: Mesh, AcceptUnseen: true, Since: start}, all, []Object{peer},
			func(w *World) {
				runsBIRD(w, "d", Bird{Silent: true})
				a := w.Agents["c"]
				a.Status.Dataplane = "none"
				w.Agents["c"] = a
			}, "ask: not all routes without reflector b at a, b, c"},
		{"BIRD has to have all routes without the last in", Goal{Mode: Mesh, Since: start}, all,
			[]Object{peer}, func(w *World) {
				a := w.Agents["a"]
				a.Status.Dataplane = "none"
				w.Agents["a"] = a
				runsBIRD(w, "d", Bird{Answers: w.answersOf("d", 2)})
				say(w, Question{Leave: "c", Label: label, Resets: true})
			}, "step: Node(c) stops being a reflector"},
		{"and has not", Goal{Mode: Mesh, Since: start}, all,
			[]Object{peer}, func(w *World) {
				a := w.Agents["a"]
				a.Status.Dataplane = "none"
				w.Agents["a"] = a
				answers := w.answersOf("d", 2)
				for i, r := range answers[1].Routes { // b's route comes from c alone
					if r.Prefix == prefixOf(1) && r.Peer != w.snapshot.Nodes["c"].IPv4.Addr() {
						answers[1].Routes[i].Prefix = prefixOf(7)
					}
				}
				answers[1].Routes = append(answers[1].Routes, calico.NodeStatusRoute{
					Prefix: prefixOf(1), Gateway: "10.0.0.2", Interface: "eth0",
					Peer: w.snapshot.Nodes["c"].IPv4.Addr(), FIB: true,
				})
				runsBIRD(w, "d", Bird{Answers: answers})
				say(w, Question{Leave: "c", Label: label, Resets: true})
			}, "ask: not all routes without reflector c at d, such as 10.1.1.0/26"},
		{"the mesh came back just now", Goal{Mode: Mesh, Since: start,
			MeshOn: start.Add(-59 * time.Second)}, all, []Object{peer}, nil,
			"wait: the mesh has been on for less than 1m0s"},
		{"our BGPPeer last", toMesh, nil, []Object{peer}, nil,
			"step: delete BGPPeer(" + peerName + ")"},
		{"once all know that nobody reflects", toMesh, nil, []Object{peer}, lagging("b"),
			"wait: the last change is not applied at b"},
		{"the mesh", toMesh, nil, nil, nil, "step: verify: mesh"},
		{"the mesh, but a node lags", toMesh, nil, nil, lagging("b"),
			"wait: the last change is not applied at b"},
		{"the mesh, but for a session", toMesh, nil, nil, func(w *World) {
			a := w.Agents["b"]
			a.Status.Down = []Down{{"d", start}}
			w.Agents["b"] = a
		}, "wait: the session between b and d is down"},
		{"the mesh, verified", Goal{Mode: Mesh}, nil, nil, nil, "done: mesh"},
	} {
		var nodes []testNode
		for i, name := range []string{"a", "b", "c", "d"} {
			n := numbered(i)
			n.name, n.age = name, 100-i
			nodes = append(nodes, n)
		}
		if tc.nodes != nil {
			tc.nodes(nodes)
		}
		w := ready(worldOf(append(objectsOf(nodes), tc.more...), nil))
		if tc.world != nil {
			tc.world(w)
		}
		if got := decided(Next(w, tc.goal)); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// TestAnswers: two answers must agree, and what was found with something else applied counts
// nothing.
func TestAnswers(t *testing.T) {
	w := ready(worldOf([]Object{numbered(0).object(), numbered(1).object()}, nil))
	q := Question{Mesh: true}
	now := w.digest("n0000")
	yes := Answer{Question: q, Digest: now, IPv4: Change{Prefixes: 3, FewestCopies: 2}}
	no, old, once, other, changed := yes, yes, yes, yes, yes
	no.IPv6 = Change{Missing: 1, Examples: []string{"fd00::/64"}}
	old.Digest = "another"
	once.IPv4.FewestCopies = 1
	other.Question = Question{Leave: "n0001"}
	changed.IPv4.Changed = 1
	for _, tc := range []struct {
		answers []Answer
		open    bool
		example string
	}{
		{nil, false, ""},
		{[]Answer{yes}, false, ""},
		{[]Answer{yes, yes}, true, ""},
		{[]Answer{no, yes, yes}, true, ""},
		{[]Answer{yes, other, yes, other}, true, ""},
		{[]Answer{yes, no}, false, "fd00::/64"},
		{[]Answer{yes, old}, false, ""},
		{[]Answer{yes, once}, false, ""},
		{[]Answer{changed, yes}, false, ""},
	} {
		a := w.Agents["n0000"]
		a.Answers = tc.answers
		w.Agents["n0000"] = a
		shut, example := w.shut(q, []string{"n0000"}, func(string) int { return 2 })
		if (len(shut) == 0) != tc.open || example != tc.example {
			t.Errorf("%+v: %v, %q", tc.answers, shut, example)
		}
	}
}

// TestStepComparesWhatItDependsOn: the mesh, our BGPPeer, all reflectors and what it writes.
func TestStepComparesWhatItDependsOn(t *testing.T) {
	foreign := numbered(3)
	foreign.clusterID = "1.1.1.1"
	w := ready(worldOf([]Object{numbered(0).object(), numbered(1).object(), foreign.object()}, nil))
	d := (&decider{World: w}).compare([]Write{{Key: nodeKey("n0001")}})
	var got []string
	for _, o := range d {
		got = append(got, o.Key.Resource())
	}
	want := calico.KindBGPConfiguration + "(default) " + calico.KindBGPPeer + "(" + peerName +
		") Node(n0001) Node(n0003)"
	if text := strings.Join(got, " "); text != string(want) {
		t.Errorf("%s, want %s", text, want)
	}
}

// More reflectors than a transaction of etcd can compare are refused before the first step. Where
// there are that many, no step is tried that etcd would refuse each time.
func TestMoreReflectorsThanEtcdCompares(t *testing.T) {
	var objects []Object
	for i := range 130 {
		n := numbered(i)
		n.labels = map[string]string{"pool": "rr"}
		objects = append(objects, n.object())
	}
	goal := Goal{Mode: Reflectors, Config: Config{Pool: "has(pool)", WholePool: true}}
	if got, want := decided(Next(ready(worldOf(objects, nil)), goal)),
		"person: 130 reflectors would be chosen, and 100 are the most"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i := range objects {
		n := numbered(i)
		n.clusterID = "1.1.1.1" // a person's
		objects[i] = n.object()
	}
	goal = Goal{Mode: Mesh, Since: start}
	if got, want := decided(Next(ready(worldOf(objects, nil)), goal)), "person: there are 130 "+
		"reflectors, more than one transaction of etcd can compare"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
