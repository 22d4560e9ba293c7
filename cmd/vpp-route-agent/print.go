package main

import (
	"fmt"
	"io"
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
		fmt.Fprintf(b, "BGP   AS %d, router ID %s, port %d, announcing %d prefixes\n", s.BGP.AS,
			s.BGP.RouterID, s.BGP.ListenPort, len(s.BGP.Announcements))
		if s.BGP.PeersToRemove > 0 {
			fmt.Fprintf(b, "  - %d peers are still to be removed\n", s.BGP.PeersToRemove)
		}
	}
	if isOff(s) {
		fmt.Fprintln(b, "BGP   off (--learn ipam)")
	}
	writeFIBLine(b, s.FIB)
	writeGuardLines(b, s.FIB)
	writeUplinkLine(b, s.Uplink)
	writeEtcdLine(b, s.Datastore)
	for _, hop := range s.FIB.UnusableNextHops {
		fmt.Fprintf(b, "  - routes via %s are left out: %s\n", hop.Address, hop.Reason)
	}
	for _, wh := range s.BGP.Withheld {
		fmt.Fprintf(b, "  - %s is not announced: %s\n", wh.Prefix, wh.Reason)
	}
	writeUnrouted(b, s.Unrouted)
	for _, p := range s.Problems {
		fmt.Fprintf(b, "  ! %s\n", p)
	}
	if isOff(s) {
		_, err := io.WriteString(w, b.String())
		return err
	}
	is4 := func(p agent.PeerStatus) bool { return p.Address.Is4() }
	is6 := func(p agent.PeerStatus) bool { return !is4(p) }
	writePeerTable(b, "IPv4", s.BGP.Peers, is4)
	writePeerTable(b, "IPv6", s.BGP.Peers, is6)
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
		fmt.Fprintf(b, "  ! %d routes are hidden by routes of another program, which packets "+
			"follow instead; `routes` names it\n", t.Shadowed)
	}
}

// isOff reports an agent without BGP.
func isOff(s agent.Status) bool { return len(s.Learn) > 0 && !slices.Contains(s.Learn, "bgp") }

// writeUnrouted bounds the lines: hosts that publish nothing may have hundreds of blocks. The JSON
// has all.
func writeUnrouted(b *strings.Builder, all []agent.UnroutedStatus) {
	const most = 10
	for _, u := range all[:min(most, len(all))] {
		fmt.Fprintf(b, "  - %s has no route from etcd: %s\n", u.Prefix, u.Reason)
	}
	if more := len(all) - most; more > 0 {
		fmt.Fprintf(b, "  - and so have %d more, see status -o json\n", more)
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

func writeGuardLines(b *strings.Builder, f agent.FIBStatus) {
	for _, g := range f.Guard {
		fmt.Fprintf(b, "  ! %d deletions of %s routes are held until %s: so many at once may be "+
			"a broken list; `guard release` carries them out\n",
			g.Held, g.Origin, g.Releases.Local().Format(time.TimeOnly))
	}
}

func writeEtcdLine(b *strings.Builder, d agent.DatastoreStatus) {
	state := "connected"
	if !d.Connected {
		state = "NOT CONNECTED"
	}
	fmt.Fprintf(b, "etcd  %s: %s, revision %d", strings.Join(d.Endpoints, ","), state, d.Revision)
	if d.LastContact != nil {
		fmt.Fprintf(b, ", last contact %s ago", time.Since(*d.LastContact).Round(time.Second))
	}
	if strings.HasPrefix(d.Kept, "degraded") {
		fmt.Fprintf(b, "; copy on disk %s", d.Kept)
	}
	fmt.Fprintln(b)
}

func writePeerTable(b *strings.Builder, family string, peers []agent.PeerStatus,
	in func(agent.PeerStatus) bool) {
	var rows [][]string
	for _, p := range peers {
		if in(p) {
			rows = append(rows,
				[]string{p.Peer.String(), p.Type, birdState(p), since(p.Since), info(p)})
		}
	}
	fmt.Fprintf(b, "\n%s BGP status\n", family)
	if len(rows) == 0 {
		fmt.Fprintf(b, "No %s peers found.\n", family)
		return
	}
	writeBox(b, []string{"PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"}, rows)
}

// birdState is the protocol state as BIRD would show it.
func birdState(p agent.PeerStatus) string {
	if p.Established {
		return "up"
	}
	return "start"
}

// since prints a time as calicoctl does: the clock today, the date when it is older than about 20
// hours.
func since(t *time.Time) string {
	switch {
	case t == nil:
		return ""
	case time.Since(*t) > 20*time.Hour:
		return t.Local().Format(time.DateOnly)
	}
	return t.Local().Format(time.TimeOnly)
}

func info(p agent.PeerStatus) string {
	if p.LastError == "" || p.Established {
		return p.State
	}
	return p.State + " " + p.LastError
}

// writeBox draws calicoctl's table.
func writeBox(b *strings.Builder, header []string, rows [][]string) {
	width := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	line := "+"
	for _, n := range width {
		line += strings.Repeat("-", n+2) + "+"
	}
	fmt.Fprintln(b, line)
	writeRow := func(row []string) {
		b.WriteString("|")
		for i, cell := range row {
			fmt.Fprintf(b, " %-*s |", width[i], cell)
		}
		b.WriteString("\n")
	}
	writeRow(header)
	fmt.Fprintln(b, line)
	for _, row := range rows {
		writeRow(row)
	}
	fmt.Fprintln(b, line)
}

func printPeers(w io.Writer, peers []agent.PeerStatus) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "PEER\tNODE\tTYPE\tAS\tDIAL\tSTATE\tRECEIVED\tACCEPTED\tFROM")
	for _, p := range peers {
		dial := "active"
		if p.Passive {
			dial = "passive"
		}
		node := p.Node
		if node == "" {
			node = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", p.Peer, node, p.Type, p.RemoteAS,
			dial, info(p), p.Received, p.Accepted, p.Source)
	}
	return tw.Flush()
}

func printRoutes(w io.Writer, routes []agent.RouteStatus) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "PREFIX\tORIGIN\tNEXT HOP\tSTATE\tREASON")
	for _, r := range routes {
		prefix := r.Prefix.String()
		if r.Table != 0 {
			prefix = fmt.Sprintf("%s table %d", prefix, r.Table)
		}
		if r.Elevated {
			prefix += " elevated"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", prefix, r.Origin, nextHops(r), r.State, r.Reason)
	}
	return tw.Flush()
}

func nextHops(r agent.RouteStatus) string {
	if r.Kind != "via" {
		return r.Kind
	}
	hops := make([]string, len(r.Paths))
	for i, p := range r.Paths {
		hops[i] = strings.TrimSpace(p.NextHop + " " + p.Interface)
		if p.Weight > 1 {
			hops[i] = fmt.Sprintf("%s weight %d", hops[i], p.Weight)
		}
	}
	return strings.Join(hops, ", ")
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
	done := "only reported"
	if r.Repair {
		done = "being repaired"
	}
	_, err := fmt.Fprintf(w, "%d routes listed, %d compared: %d missing, %d different, %d extra "+
		"(%s), %d hidden by routes of other owners\n",
		r.Listed, r.Compared, r.Missing, r.Different, r.Extra, done, r.Hidden)
	return err
}
