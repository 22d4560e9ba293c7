package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vpp-route-agent/internal/agent"
)

// mostPeers bounds the sessions of one family that status shows.
const mostPeers = 50

// writePeerTable writes calicoctl's table, with the errors to its right: they have any length. Of
// too many sessions it shows those that are down first, and counts the rest.
func writePeerTable(b *strings.Builder, family string, peers []agent.PeerStatus) {
	fmt.Fprintf(b, "\n%s BGP status\n", family)
	if len(peers) == 0 {
		fmt.Fprintf(b, "No %s peers found.\n", family)
		return
	}
	var rest []agent.PeerStatus
	if len(peers) > mostPeers {
		peers = slices.SortedStableFunc(slices.Values(peers), func(p, q agent.PeerStatus) int {
			switch {
			case p.Established == q.Established:
				return 0
			case q.Established:
				return -1 // those that are down come first
			}
			return 1
		})
		peers, rest = peers[:mostPeers], peers[mostPeers:]
	}
	rows := [][]string{{"PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"}}
	errors := []string{heading(peers)}
	for _, p := range peers {
		rows = append(rows,
			[]string{p.Peer.String(), p.Type, birdState(p), since(p.Since), p.State})
		errors = append(errors, lastError(p))
	}
	writeBox(b, rows, errors)
	if len(rest) > 0 {
		down := countDown(rest)
		fmt.Fprintf(b, "and %d more: %d down, %d up; `peers` shows all\n", len(rest), down,
			len(rest)-down)
	}
}

// sessionsDown counts the sessions that are not Established.
func sessionsDown(s agent.Status) int { return countDown(s.BGP.Peers) }

func countDown(peers []agent.PeerStatus) (n int) {
	for _, p := range peers {
		if !p.Established {
			n++
		}
	}
	return n
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
	case t == nil || t.IsZero():
		return ""
	case time.Since(*t) > 20*time.Hour:
		return t.Local().Format(time.DateOnly)
	}
	return t.Local().Format(time.TimeOnly)
}

// lastError is why a session is down, or would not come up after a restart of the agent. Another
// error of one that is up is of the past.
func lastError(p agent.PeerStatus) string {
	if p.Established {
		return p.Problem
	}
	return p.LastError
}

// heading is that of the column of errors, which is there only if there is an error.
func heading(peers []agent.PeerStatus) string {
	if slices.ContainsFunc(peers, func(p agent.PeerStatus) bool { return lastError(p) != "" }) {
		return "ERROR"
	}
	return ""
}

// writeBox draws calicoctl's table; the first row is its heading. To the right of each row it
// writes a note.
func writeBox(b *strings.Builder, rows [][]string, notes []string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	line := "+"
	for _, n := range width {
		line += strings.Repeat("-", n+2) + "+"
	}
	fmt.Fprintln(b, line)
	for r, row := range rows {
		b.WriteString("|")
		for i, cell := range row {
			fmt.Fprintf(b, " %-*s |", width[i], cell)
		}
		fmt.Fprintln(b, strings.TrimSuffix(" "+notes[r], " "))
		if r == 0 {
			fmt.Fprintln(b, line)
		}
	}
	fmt.Fprintln(b, line)
}

func printPeers(w io.Writer, peers []agent.PeerStatus) error {
	b := &strings.Builder{}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	errors := heading(peers)
	writeRow := func(row, note string) {
		if errors != "" { // in every row: a row without the cell would end the column above it
			row += "\t" + note
		}
		fmt.Fprintln(tw, row)
	}
	writeRow("PEER\tNODE\tTYPE\tAS\tDIAL\tSTATE\tRECEIVED\tACCEPTED\tFROM", errors)
	for _, p := range peers {
		dial := "active"
		if p.Passive {
			dial = "passive"
		}
		writeRow(fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s", p.Peer, cmp.Or(p.Node, "-"),
			p.Type, p.RemoteAS, dial, p.State, p.Received, p.Accepted, p.Source), lastError(p))
	}
	tw.Flush()
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
