package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func verdict(r result) string {
	switch {
	case r.Skipped != "":
		return "–"
	case r.OK:
		return "ok"
	}
	return "NO"
}

func allHold(results []result) bool {
	return !slices.ContainsFunc(results, func(r result) bool { return !r.OK && r.Skipped == "" })
}

// columns is a result as a row of the table.
func columns(r result) []string {
	if r.Skipped != "" {
		return []string{r.What, r.Dataplane, "", "", "", r.AllowedFor, "not run: " + r.Skipped}
	}
	flows, lost := fmt.Sprintf("%d flows, %d packets", r.Flows, r.Sent), fmt.Sprint(r.Lost)
	if r.Flows == 0 {
		flows, lost = "no packets in it", "–"
	}
	allowed := r.AllowedFor
	if r.Allowed > 0 {
		allowed += fmt.Sprintf(" (%d)", r.Allowed)
	}
	remarks := slices.Concat(r.Failed, r.Notes, r.Repeated)
	return []string{
		r.What, r.Dataplane, flows, lost, allowed, fmt.Sprintf("%.1f s", r.Converged),
		strings.TrimSpace(verdict(r) + " " + strings.Join(remarks, "; ")),
	}
}

var header = []string{"EVENT", "FORWARDS", "FLOWS", "LOST", "ALLOWED", "CONVERGED", "HELD"}

func printTable(w io.Writer, results []result, took time.Duration) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	held, skipped, again := 0, 0, replayed{}
	for _, r := range results {
		fmt.Fprintln(tw, strings.Join(columns(r), "\t"))
		again.add(r.Replayed)
		switch {
		case r.Skipped != "":
			skipped++
		case r.OK:
			held++
		}
	}
	tw.Flush()
	fmt.Fprintf(w, "%d of %d held, %d could not be run here, in %s\n",
		held, len(results)-skipped, skipped, took.Round(time.Second))
	fmt.Fprintln(w, again)
}

func markdownTable(results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n",
		strings.Join([]string{"event", "forwards", "flows", "lost", "allowed", "converged", "held"},
			" | "),
		strings.Repeat("---|", len(header)))
	for _, r := range results {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(columns(r), " | "))
	}
	return b.String()
}

func writeJSON(path string, results []result) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
