package main

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
)

// printPlan writes a plan for people. What has its default is left out of a peer's lines.
func printPlan(w io.Writer, p nodePlan) error {
	b := &strings.Builder{}
	switch {
	case p.Waiting != "":
		fmt.Fprintf(b, "Node %s would do nothing: %s\n", p.Node, p.Waiting)
	default:
		s := p.Speaker
		fmt.Fprintf(b, "Node %s: AS %d, router ID %s, port %d on %s", p.Node, s.AS, s.RouterID,
			s.ListenPort, orAll(s.ListenAddresses))
		if s.ClusterID != "" {
			fmt.Fprintf(b, ", route reflector of cluster %s", s.ClusterID)
		}
		fmt.Fprintln(b)
	}
	if p.HandsOff {
		fmt.Fprintln(b, "ClusterInformation(default) says datastoreReady: false, so an agent "+
			"that runs changes nothing")
	}
	for _, problem := range p.Problems {
		fmt.Fprintf(b, "  ! %s\n", problem)
	}
	if p.Waiting == "" {
		writePlannedPeers(b, p.Peers)
		writePlannedAnnouncements(b, p)
	}
	for _, prefix := range p.Prefixes {
		writePrefixPlan(b, prefix)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orAll(addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return "all addresses"
	}
	return joined(addresses)
}

func joined[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = v.String()
	}
	return strings.Join(texts, ", ")
}

func writePlannedPeers(b *strings.Builder, peers []agent.PlannedPeer) {
	fmt.Fprintf(b, "\nPeers: %d\n", len(peers))
	for _, p := range peers {
		for _, line := range peerLines(p) {
			fmt.Fprintf(b, "  %s\n", line)
		}
		for _, d := range p.Differs {
			fmt.Fprintf(b, "    %s: ours %s, stock %s: %s\n", d.Field, d.Ours, d.Stock, d.Why)
		}
	}
}

// peerLines describe a peer, the first which it is.
func peerLines(p agent.PlannedPeer) []string {
	name := ""
	if p.Node != "" {
		name = " (" + p.Node + ")"
	}
	keepalive := "a third of the hold time"
	if p.KeepaliveTimeSeconds > 0 {
		keepalive = fmt.Sprintf("%d s", p.KeepaliveTimeSeconds)
	}
	lines := []string{
		fmt.Sprintf("%s port %d%s: %s, from %s", p.Address, p.Port, name, p.Type, p.Source),
		fmt.Sprintf("  AS %d, local AS %d, %s, source address %s", p.RemoteAS, p.LocalAS,
			dialText(p), p.SourceAddress),
		fmt.Sprintf("  restart time %d s, keepalive %s, next hop %s", p.RestartTimeSeconds,
			keepalive, p.NextHopMode),
	}
	if more := unusual(p); len(more) > 0 {
		lines = append(lines, "  "+strings.Join(more, ", "))
	}
	return lines
}

func dialText(p agent.PlannedPeer) string {
	if p.Dial == "passive" {
		return "the peer dials"
	}
	return "this node dials"
}

// unusual are the properties that most peers do not have.
func unusual(p agent.PlannedPeer) []string {
	var out []string
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(p.Client, "client in cluster %s", p.ClusterID)
	add(p.Reflector, "a route reflector")
	if p.Password != nil {
		add(true, "password %s/%s", p.Password.Name, p.Password.Key)
	}
	add(p.TTLSecurity > 0, "TTL security %d hops", p.TTLSecurity)
	add(p.Multihop, "multihop")
	add(len(p.Filters) > 0, "filters %s", strings.Join(p.Filters, ", "))
	add(p.AllowLocalAS > 0, "local AS allowed %d times", p.AllowLocalAS)
	add(p.ReachableBy != "", "reachable by %s", p.ReachableBy)
	add(p.PrefixLimit > 0, "%d prefixes at most", p.PrefixLimit)
	return out
}

func writePlannedAnnouncements(b *strings.Builder, p nodePlan) {
	fmt.Fprintf(b, "\nAnnouncements: %d\n", len(p.Announcements))
	for _, a := range p.Announcements {
		fmt.Fprintf(b, "  %s\n", announcementText(a))
	}
	for _, wh := range p.Withheld {
		fmt.Fprintf(b, "  - %s is not announced: %s\n", wh.Prefix, wh.Reason)
	}
	if len(p.NotProgrammed) > 0 {
		fmt.Fprintf(b, "Not forwarded by, being service addresses: routes inside %s\n",
			joined(p.NotProgrammed))
	}
}

func announcementText(a agent.PlannedAnnouncement) string {
	text := fmt.Sprintf("%s, next hop %s, LOCAL_PREF %d", a.Prefix, a.NextHop, a.LocalPref)
	if a.Service {
		text += ", addresses of services"
	}
	if a.OnlyByFilter {
		text += ", only to peers whose filters accept it"
	}
	return text
}

func writePrefixPlan(b *strings.Builder, p prefixPlan) {
	if p.Announced {
		fmt.Fprintf(b, "\nPrefix %s: announced by this node\n", p.Prefix)
	} else {
		fmt.Fprintf(b, "\nPrefix %s: not announced by this node: %s\n", p.Prefix, p.Reason)
	}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  PEER\tROUTE\tVERDICT\tRULE")
	for _, at := range p.Peers {
		writeVerdict(tw, at.Peer, "import", at.Import)
		if at.Own != nil {
			writeVerdict(tw, at.Peer, "export our own", *at.Own)
		}
		for _, l := range at.Passed {
			writeVerdict(tw, at.Peer, "export from "+few(l.From), l.verdict)
		}
		for _, l := range at.Elevated {
			writeVerdict(tw, at.Peer, "elevated, from "+few(l.From), l.verdict)
		}
	}
	tw.Flush()
	if p.Encapsulation != nil {
		writeEncapsulation(b, *p.Encapsulation)
	}
}

func writeEncapsulation(b *strings.Builder, e prefixEncapsulation) {
	if e.Felix {
		fmt.Fprintf(b, "  leaves as Felix says: on Linux it has the routes of IPPool(%s)\n", e.Pool)
	}
	if e.Note != "" {
		fmt.Fprintf(b, "  leaves without encapsulation, though IPPool(%s) asks for it: %s\n",
			e.Pool, e.Note)
	}
	for _, n := range e.Nodes {
		how := "as it is"
		switch {
		case n.Refused:
			how = "not at all"
		case n.OuterSource != nil:
			how = fmt.Sprintf("in %s from %s to %s", n.Encapsulation, *n.OuterSource,
				*n.OuterDestination)
		}
		fmt.Fprintf(b, "  leaves to %s (%s) %s: %s\n", n.NextHop, n.Node, how, n.Reason)
	}
}

func writeVerdict(w io.Writer, peer bgp.PeerID, route string, v verdict) {
	word := "reject"
	if v.Accept {
		word = "accept"
	}
	fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", peer, route, word,
		strings.Join(append([]string{v.Rule}, v.Operations...), "; "))
}

// few bounds a cell; the JSON has all.
func few(peers []bgp.PeerID) string {
	const most = 3
	if len(peers) <= most {
		return joined(peers)
	}
	return fmt.Sprintf("%s and %d more", joined(peers[:most]), len(peers)-most)
}
