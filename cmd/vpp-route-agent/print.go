package main

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vpp-route-agent/internal/agent"
)

// printStatus writes a summary, with the peer tables in calicoctl's form
// (calicoctl/commands/node/status.go).
func printStatus(w io.Writer, s agent.Status) error {
	b := &strings.Builder{}
	ready := "ready"
	if !s.Ready {
		ready = "NOT READY"
	}
	fmt.Fprintf(b, "Node %s is %s (vpp-route-agent %s, up %s)\n", s.Node, ready, s.Version,
		time.Since(s.Started).Round(time.Second))
	for _, c := range s.Conditions {
		if !c.OK || c.Message != "" {
			mark := "-"
			if !c.OK {
				mark = "!"
			}
			fmt.Fprintf(b, "  %s %s: %s\n", mark, c.Name, c.Message)
		}
	}
	if s.BGP.RouterID != "" {
		fmt.Fprintf(b, "BGP   AS %d, router ID %s, port %d, announcing %s, "+
			"%d of %d sessions up\n", s.BGP.AS, s.BGP.RouterID, s.BGP.ListenPort,
			count(len(s.BGP.Announcements), "prefix", "prefixes"),
			len(s.BGP.Peers)-sessionsDown(s), len(s.BGP.Peers))
		if s.BGP.PeersToRemove > 0 {
			fmt.Fprintf(b, "  - %s still to be removed\n",
				count(s.BGP.PeersToRemove, "peer is", "peers are"))
		}
	}
	if isOff(s) {
		fmt.Fprintln(b, "BGP   off (--learn ipam)")
	}
	writeFIBLine(b, s.FIB)
	writeTunnelLine(b, s.FIB.Tunnels)
	writeGuardLines(b, s.FIB)
	writeUplinkLine(b, s.Uplink)
	writeExternalLines(b, s.External)
	writeLinuxLine(b, s.Linux)
	writeDatastoreLine(b, s.Datastore)
	writeSome(b, "unusable next hops", s.FIB.UnusableNextHops, func(h agent.NextHopStatus) string {
		if h.Pool != nil {
			return fmt.Sprintf("- routes in %s via %s are left out: %s", h.Pool, h.Address,
				h.Reason)
		}
		return fmt.Sprintf("- routes via %s are left out: %s", h.Address, h.Reason)
	})
	writeSome(b, "prefixes not announced", s.BGP.Withheld, func(wh agent.WithheldStatus) string {
		return fmt.Sprintf("- %s is not announced: %s", wh.Prefix, wh.Reason)
	})
	writeSome(b, "prefixes without a route", s.Unrouted, func(u agent.UnroutedStatus) string {
		return fmt.Sprintf("- %s has no route from etcd: %s", u.Prefix, u.Reason)
	})
	writeSome(b, "problems", s.Problems, func(p agent.ProblemStatus) string {
		return "! " + p.String()
	})
	if isOff(s) {
		_, err := io.WriteString(w, b.String())
		return err
	}
	var peers4, peers6 []agent.PeerStatus
	for _, p := range s.BGP.Peers {
		if p.Address.Is4() {
			peers4 = append(peers4, p)
		} else {
			peers6 = append(peers6, p)
		}
	}
	writePeerTable(b, "IPv4", peers4)
	writePeerTable(b, "IPv6", peers6)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFIBLine(b *strings.Builder, f agent.FIBStatus) {
	if f.Dataplane == "none" {
		fmt.Fprintln(b, "FIB   none: peers and RIB only")
		return
	}
	var t agent.RouteCounts
	for _, c := range f.Routes {
		t.Desired += c.Desired
		t.Programmed += c.Programmed
		t.Failed += c.Failed
		t.Unusable += c.Unusable
		t.Held += c.Held
		t.Shadowed += c.Shadowed
		t.Drifted += c.Drifted
	}
	version := f.Version
	if version == "" {
		version = f.Dataplane
	}
	fmt.Fprintf(b, "FIB   %s: %d of %d routes programmed, %d failed, %d unusable, %d held", version,
		t.Programmed, t.Desired, t.Failed, t.Unusable, t.Held)
	if t.Shadowed > 0 {
		fmt.Fprintf(b, ", %d shadowed", t.Shadowed)
	}
	if t.Drifted > 0 {
		fmt.Fprintf(b, ", %d drifted", t.Drifted)
	}
	fmt.Fprintf(b, "; sweep %s; journal %s\n", f.Sweep, f.Journal)
	if t.Shadowed > 0 {
		fmt.Fprintf(b, "  ! %s hidden by routes of another program, which packets follow "+
			"instead; `routes` names it\n", count(t.Shadowed, "route is", "routes are"))
	}
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// isOff reports an agent without BGP.
func isOff(s agent.Status) bool { return len(s.Learn) > 0 && !slices.Contains(s.Learn, "bgp") }

// writeSome bounds the lines: there may be hundreds of any kind. The JSON has all.
func writeSome[T any](b *strings.Builder, what string, all []T, line func(T) string) {
	const most = 10
	for _, v := range all[:min(most, len(all))] {
		fmt.Fprintf(b, "  %s\n", line(v))
	}
	if more := len(all) - most; more > 0 {
		fmt.Fprintf(b, "  - and %d more of the %s, see status -o json\n", more, what)
	}
}

func writeUplinkLine(b *strings.Builder, u *agent.UplinkStatus) {
	if u == nil {
		return
	}
	var addresses, published []string
	for _, a := range u.Addresses {
		addresses = append(addresses, a.String())
	}
	for _, a := range u.Published {
		published = append(published, a.String())
	}
	state := "up"
	if !u.OK {
		state = "NOT AS IT SHOULD BE"
	}
	fmt.Fprintf(b, "link  %s %s: %s", u.Interface, strings.Join(addresses, ", "), state)
	switch {
	case u.Publish == "off":
		fmt.Fprint(b, "; not published")
	case len(published) == 0:
		fmt.Fprint(b, "; not published yet")
	case u.Publish == "lease":
		fmt.Fprintf(b, "; published %s, for %ds after this node's end",
			strings.Join(published, ", "), u.TTLSeconds)
	default:
		fmt.Fprintf(b, "; published %s, for ever", strings.Join(published, ", "))
	}
	fmt.Fprintln(b)
}

// heldBy names what the guard keeps.
func heldBy(g agent.GuardStatus) string {
	if g.Origin == "tunnel" {
		return "tunnels"
	}
	return g.Origin + " routes"
}

func writeGuardLines(b *strings.Builder, f agent.FIBStatus) {
	for _, g := range f.Guard {
		fmt.Fprintf(b, "  ! %d deletions of %s are held until %s: so many at once may be "+
			"a broken list; `guard release` carries them out\n",
			g.Held, heldBy(g), g.Releases.Local().Format(time.TimeOnly))
	}
}

func writeDatastoreLine(b *strings.Builder, d agent.DatastoreStatus) {
	state := "connected"
	if !d.Connected {
		state = "NOT CONNECTED"
	}
	name := "etcd"
	if d.Type == inKubernetes {
		name = inKubernetes
	}
	fmt.Fprintf(b, "%s  %s: %s, revision %d", name, strings.Join(d.Endpoints, ","), state,
		d.Revision)
	if d.LastContact != nil {
		fmt.Fprintf(b, ", last contact %s ago", time.Since(*d.LastContact).Round(time.Second))
	}
	if strings.HasPrefix(d.Kept, "degraded") {
		fmt.Fprintf(b, "; copy on disk %s", d.Kept)
	}
	fmt.Fprintln(b)
}

func printRoutes(w io.Writer, routes []agent.RouteStatus) error {
	return writeRoutes(w, routes, false)
}

func printCountedRoutes(w io.Writer, routes []agent.RouteStatus) error {
	return writeRoutes(w, routes, true)
}

func writeRoutes(w io.Writer, routes []agent.RouteStatus, counters bool) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	columns := "PREFIX\tORIGIN\tNEXT HOP\tSTATE\t"
	if counters {
		columns += "PACKETS\tBYTES\t"
	}
	fmt.Fprintln(tw, columns+"REASON")
	for _, r := range routes {
		prefix := r.Prefix.String()
		if r.Table != 0 {
			prefix = fmt.Sprintf("%s table %d", prefix, r.Table)
		}
		if r.Elevated {
			prefix += " elevated"
		}
		origin := r.Origin
		if r.Source != "" {
			origin += " (" + r.Source + ")"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t", prefix, origin, nextHops(r), r.State)
		if counters {
			fmt.Fprintf(tw, "%s\t%s\t", orDash(r.Packets), orDash(r.Bytes))
		}
		fmt.Fprintln(tw, r.Reason)
	}
	return tw.Flush()
}

// orDash prints what was counted, if it was.
func orDash(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// printCountedHops prints the next hops of routes, or why they are not counted.
func printCountedHops(w io.Writer, routes []agent.RouteStatus, hops agent.HopsCounted) error {
	if hops.NotCounted != "" {
		_, err := fmt.Fprintf(w, "\nby next hop: %s\n", hops.NotCounted)
		return err
	}
	type hop struct{ address, on string }
	used := map[hop]bool{}
	for _, r := range routes {
		for _, p := range r.Paths {
			used[hop{p.NextHop, p.Interface}] = true
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nNEXT HOP, OF ALL ROUTES\tPACKETS\tBYTES")
	for _, h := range hops.NextHops {
		if used[hop{h.NextHop, h.Interface}] {
			fmt.Fprintf(tw, "%s\t%s\t%s\n", hopText(h), orDash(h.Packets), orDash(h.Bytes))
		}
	}
	return tw.Flush()
}

// remark says what becomes of packets to p where no route of ours leads to another node. match asks
// the data plane.
func remark(p netip.Prefix, routes []agent.RouteStatus, ours []agent.AnnouncementStatus,
	match func() (agent.MatchStatus, error)) string {
	if slices.ContainsFunc(routes, func(r agent.RouteStatus) bool { return r.Kind == "via" }) {
		return ""
	}
	for _, a := range ours {
		if a.Prefix.Bits() <= p.Bits() && a.Prefix.Contains(p.Addr()) {
			return fmt.Sprintf("%s is of this node, which announces %s: a local workload has it, "+
				"or nobody\n", p, a.Prefix)
		}
	}
	if len(routes) > 0 {
		return ""
	}
	if p.IsSingleIP() {
		if m, err := match(); err == nil {
			return fmt.Sprintf("no route of ours leads to %s: %s\n", p.Addr(), matched(m))
		}
	}
	return fmt.Sprintf("no route of ours leads to %s: packets follow the data plane's other "+
		"routes, such as a default route\n", p)
}

// matched says what the data plane does by a route of another program.
func matched(m agent.MatchStatus) string {
	name := "the route to " + m.Prefix.String()
	switch {
	case !m.Prefix.IsValid():
		return "nor does any other route, packets are dropped"
	case m.Prefix.Bits() == 0:
		name = "the default route"
	}
	name += " (" + m.Owner + ")"
	if m.Forwards == nil || !*m.Forwards {
		return name + " matches, and does not forward"
	}
	if len(m.Paths) == 0 { // over several interfaces, which VPP does not tell apart
		return name + " does"
	}
	return name + " does, via " + hops(m.Paths)
}

func writeTunnelLine(b *strings.Builder, t *agent.TunnelCounts) {
	if t == nil {
		return
	}
	if strings.Contains(t.Encapsulation, ",") { // two to each node
		fmt.Fprintf(b, "%s: %d of %s programmed\n", t.Encapsulation, t.Programmed,
			count(t.Desired, "tunnel", "tunnels"))
	} else {
		fmt.Fprintf(b, "%-5s tunnels to %d of %s programmed\n", t.Encapsulation, t.Programmed,
			count(t.Desired, "node", "nodes"))
	}
	if t.Problem != "" {
		fmt.Fprintf(b, "  ! %s\n", t.Problem)
	}
}

func printTunnels(w io.Writer, all []agent.TunnelStatus) error {
	if len(all) == 0 {
		_, err := io.WriteString(w, "there is no tunnel: no pool encapsulates, there is no "+
			"other node, or `status` or `routes` says what is missing\n")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NODE\tENCAPSULATION\tOUTER ADDRESS\tINTERFACE\tMTU\tSTATE\tSINCE\t"+
		"PACKETS IN\tBYTES IN\tPACKETS OUT\tBYTES OUT\tREASON")
	for _, t := range all {
		mtu := ""
		if t.MTU > 0 {
			mtu = fmt.Sprint(t.MTU)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(t.Node, "-"),
			t.Encapsulation, t.OuterDestination, t.Interface, mtu, t.State, since(&t.Since),
			orDash(t.PacketsIn), orDash(t.BytesIn), orDash(t.PacketsOut), orDash(t.BytesOut),
			t.Reason)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return printUncounted(w, all)
}

// printUncounted says once why each "-" is one.
func printUncounted(w io.Writer, all []agent.TunnelStatus) error {
	b, said := &strings.Builder{}, map[string]bool{}
	for _, t := range all {
		if t.NotCounted != "" && !said[t.NotCounted] {
			said[t.NotCounted] = true
			fmt.Fprintf(b, "not counted: %s\n", t.NotCounted)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func nextHops(r agent.RouteStatus) string {
	if r.Kind != "via" {
		return r.Kind
	}
	return hops(r.Paths)
}

func hops(paths []agent.PathStatus) string {
	hops := make([]string, len(paths))
	for i, p := range paths {
		hops[i] = hopText(p)
	}
	return strings.Join(hops, ", ")
}

func hopText(p agent.PathStatus) string {
	text := strings.TrimSpace(p.NextHop + " " + p.Interface)
	switch {
	case p.Encapsulation != nil:
		text = fmt.Sprintf("%s %s %s", p.NextHop, p.Interface, *p.Encapsulation)
	case p.Table == nil:
	case p.NextHop == "":
		text = fmt.Sprintf("lookup in table %d", *p.Table)
	default:
		text = fmt.Sprintf("%s table %d", text, *p.Table)
	}
	if p.Weight > 1 {
		text = fmt.Sprintf("%s weight %d", text, p.Weight)
	}
	return text
}

func printAudit(w io.Writer, r agent.AuditStatus) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Findings) > 0 {
		fmt.Fprintln(tw, "PREFIX\tDRIFT\tWANTED\tFOUND")
	}
	for _, f := range r.Findings {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", f.Prefix, f.Drift, f.Want,
			strings.TrimSpace(f.Found+" "+f.By))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	done := ""
	switch {
	case r.Missing+r.Different+r.Extra == 0:
	case r.Repair:
		done = " (being repaired)"
	default:
		done = " (only reported)"
	}
	_, err := fmt.Fprintf(w, "%s listed, %d compared: %d missing, %d different, %d extra"+
		"%s, %d hidden by routes of other owners\n",
		count(r.Listed, "route", "routes"), r.Compared, r.Missing, r.Different, r.Extra, done,
		r.Hidden)
	return err
}
