package reflector

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// badTaints are those with which Kubernetes marks an unhealthy node. KubernetesNode.NotReady stands
// for not-ready and unreachable. A taint of the operator's, such as that of a pool, does not count.
var badTaints = []string{
	"node.kubernetes.io/out-of-disk", "node.kubernetes.io/memory-pressure",
	"node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable",
	"node.kubernetes.io/unschedulable", "node.cloudprovider.kubernetes.io/uninitialized",
}

// unfit says why a node cannot become a reflector, or remain one; "" if it can.
func (w *World) unfit(node string, r rules) string {
	n := w.snapshot.Nodes[node]
	note := w.annotation(nodeKey(node), cordonNote)
	switch {
	case !n.IPv4.IsValid() && !n.IPv6.IsValid():
		return "it has no BGP address"
	case r.Pool != "" && !r.pool.Matches(n.Labels):
		return "it is not in the pool " + r.Pool
	case r.Avoid != "" && r.avoid.Matches(n.Labels):
		return "avoid selects it: " + r.Avoid
	case note != "":
		return "it is cordoned: " + note
	case w.known(node) && w.Agents[node].Status.Draining:
		return "it is draining"
	case w.isReflector(node):
		if w.dead(node, r) {
			return fmt.Sprintf("it is dead: it publishes no status, and most of its sessions have "+
				"been down for %s", r.grace)
		}
	case w.bird(node):
		return "it runs BIRD: the controller makes only agents reflectors yet"
	case !w.known(node):
		return "its agent is away or of another version"
	}
	return w.unfitInKubernetes(node, r)
}

func (w *World) unfitInKubernetes(node string, r rules) string {
	k, ok := w.Kubernetes[node]
	since := w.Now.Sub(k.NotReady)
	switch {
	case w.Kubernetes == nil:
		return ""
	case !ok:
		return "Kubernetes has no such Node"
	case k.Deleted:
		return "its Kubernetes Node is being deleted"
	case k.Unschedulable:
		return "its Kubernetes Node is cordoned"
	// a restart of the kubelet moves no role
	case !k.NotReady.IsZero() && (since >= r.grace || !w.isReflector(node)):
		return fmt.Sprintf("its Kubernetes Node has not been ready for %s",
			since.Round(time.Second))
	}
	for _, taint := range k.Taints {
		if slices.Contains(badTaints, taint) {
			return "its Kubernetes Node has the taint " + taint
		}
	}
	return ""
}

// dead reports a node without a status with which most of its peers with an agent have lost all
// sessions. A node that only lacks the status may be cut off from etcd, and still work. Peers that
// are cut off count as having one: the smaller part of a split network declares none dead.
func (w *World) dead(node string, r rules) bool {
	if a, ok := w.Agents[node]; ok && a.Lost.IsZero() {
		return false
	}
	sessions := map[string]int{} // by peer; a node with both families has two with another
	for _, p := range w.peersOf(node) {
		sessions[p.CalicoNode]++
	}
	peers, down := 0, 0
	for peer, wanted := range sessions {
		a, ok := w.Agents[peer]
		switch {
		case !ok: // no Calico node, or one with BIRD
			continue
		// a client has its sessions with reflectors alone: those that are dead say nothing of it
		case !a.Lost.IsZero() && !w.isReflector(node) && w.isReflector(peer) && w.dead(peer, r):
			continue
		}
		isDown, unknown := w.isDown(peer, node, wanted, r)
		if !unknown {
			peers++
		}
		if isDown {
			down++
		}
	}
	return 2*down > peers
}

// isDown reports whether a peer says that all its sessions with a node have been down for the grace
// time. It is unknown where the peer's status had no room for that.
func (w *World) isDown(peer, node string, wanted int, r rules) (isDown, unknown bool) {
	if !w.known(peer) {
		return false, false
	}
	s := w.Agents[peer].Status
	for _, d := range s.Down {
		switch {
		case d.Node != node:
		case w.Now.Sub(d.Since) < r.grace:
			return false, false
		default:
			wanted--
		}
	}
	switch last := len(s.Down) - 1; {
	case wanted <= 0:
		return true, false
	case s.DownMore == 0:
		return false, false
	case w.hasDownBits(peer):
		up, down := 0, 0
		for other, isDown := range w.downBits(peer) {
			switch {
			case other != node:
			case isDown:
				down++
			default:
				up++
			}
		}
		return up == 0 && down > 0 && w.Now.Sub(s.DownMoreSince) >= r.grace, false
	// the reflectors come first, and all are listed
	case w.isReflector(node) && last >= 0 && !w.isReflector(s.Down[last].Node):
		return false, false
	}
	return false, true
}

// hasDownBits reports whether the DownBits of a node are there, and of its present sessions.
func (w *World) hasDownBits(node string) bool {
	s := w.Agents[node].Status
	if len(s.DownBits) == 0 || s.Digest != w.digest(node) {
		return false
	}
	sessions := 0
	for range w.downBits(node) {
		sessions++
	}
	return sessions == s.Wanted
}

// downBits are the other ends of a node's sessions, and whether they are down by its DownBits.
func (w *World) downBits(node string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		s, i := w.Agents[node].Status, 0
		for _, p := range w.peersOf(node) {
			if p.CalicoNode == "" {
				continue
			}
			if !yield(p.CalicoNode, s.isDown(i)) {
				return
			}
			i++
		}
	}
}

// storm says why nothing may be decided now: the controller was cut off from etcd, a third of all
// agents are, and they have not had the time to return, or more than half are.
func (w *World) storm(r rules) string {
	if back := w.Now.Sub(w.Connected); back < r.grace {
		return fmt.Sprintf("etcd has been reachable for only %s of the %s that agents have to "+
			"return", back.Round(time.Second), r.grace)
	}
	all, lost, lately := 0, 0, 0
	for _, n := range w.names {
		a, ok := w.Agents[n]
		if !ok {
			continue
		}
		all++
		if a.Lost.IsZero() {
			continue
		}
		lost++
		if w.Now.Sub(a.Lost) < r.grace {
			lately++
		}
	}
	switch {
	case lately > 0 && 3*lately >= all:
		return fmt.Sprintf("%d of %d agents were lost within %s", lately, all, r.grace)
	case 2*lost > all:
		return fmt.Sprintf("only %d of %d agents publish a status", all-lost, all)
	}
	return ""
}

// some lists the first few of many.
func some(all []string, separator string) string {
	const few = 5
	if len(all) <= few {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], separator), len(all)-few)
}
