package reflector

import (
	"fmt"
	"maps"
	"slices"

	"vpp-route-agent/internal/calico"
)

// adoptedNote is on what was adopted and is still to change. On a BGPPeer that ours replaces it
// holds the digest of that, so that no later edit is deleted; on a Node the cluster ID that it had,
// until it gets the configured one.
const adoptedNote = "vpp-route-agent/adopted"

// replaced are the BGPPeers that were adopted and are still there, sorted.
func (w *World) replaced() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(w.snapshot.BGPPeers)) {
		if w.annotation(calico.Key{Kind: calico.KindBGPPeer, Name: name}, adoptedNote) != "" {
			all = append(all, name)
		}
	}
	return all
}

// oldID is the cluster ID that an adopted reflector had, while it still has it; else "".
func (w *World) oldID(node string) string {
	id := w.annotation(nodeKey(node), adoptedNote)
	if id != w.snapshot.Nodes[node].RouteReflectorClusterID {
		return ""
	}
	return id
}

// settleAdopted takes the steps that an adoption leaves to the controller; false: there are none.
func (d *decider) settleAdopted() (Decision, bool) {
	if names := d.replaced(); len(names) > 0 {
		k := calico.Key{Kind: calico.KindBGPPeer, Name: names[0]}
		return d.when(d.applied).then(fmt.Sprintf("delete BGPPeer(%s), which BGPPeer(%s) replaces",
			names[0], peerName), func() ([]Write, error) { return []Write{{Key: k}}, nil }), true
	}
	if d.goal.target() == Mesh {
		return Decision{}, false // they lose the ID with the role
	}
	for _, n := range d.ours() {
		id := d.oldID(n)
		if id == "" {
			continue
		}
		gates := []gate{d.applied, d.sessionsUp}
		if !d.known(n) { // BIRD starts its sessions anew
			gates = append(gates, d.settled, d.withoutReflector(n))
		}
		return d.when(gates...).then(fmt.Sprintf("change the cluster ID of Node(%s) from %s to %s",
			n, id, d.ClusterID), d.changeID(n)), true
	}
	return Decision{}, false
}

// settled: the sessions that BIRD starts anew after the last step have had the grace time for it.
// No agent can tell when BIRD has seen a change, so that two reflectors might do so at once.
func (d *decider) settled() *Wait {
	since := d.goal.Since
	if !d.GoalSeen.IsZero() {
		since = d.GoalSeen // by this host's clock
	}
	if d.Now.Sub(since) >= d.grace {
		return nil
	}
	return &Wait{What: fmt.Sprintf("BIRD has %s to start its sessions anew after the last step",
		d.grace)}
}

func (d *decider) changeID(node string) func() ([]Write, error) {
	return func() ([]Write, error) {
		k := nodeKey(node)
		e := edit{value: d.objects[k].Value}
		e.remove("metadata", "annotations", adoptedNote)
		e.set(d.ClusterID, "spec", "bgp", "routeReflectorClusterID")
		return put(k, e.value, e.err)
	}
}

// adoptedEdits say what a person did to what was adopted.
func (d *decider) adoptedEdits() []string {
	var all []string
	for _, name := range d.replaced() {
		k := calico.Key{Kind: calico.KindBGPPeer, Name: name}
		if d.annotation(k, adoptedNote) != peerDigest(d.snapshot.BGPPeers[name]) {
			all = append(all, fmt.Sprintf("BGPPeer(%s): a person changed it since it was adopted; "+
				"without the annotation %s it is theirs again", name, adoptedNote))
		}
	}
	return all
}
