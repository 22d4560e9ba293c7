package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"vpp-route-agent/internal/agent"
)

// The JSON of plan --diff; docs/plan.md describes it. It only grows, and lists are never null.
type (
	planDiff struct {
		Node    string       `json:"node"`
		From    string       `json:"from"`
		To      string       `json:"to"`
		Same    bool         `json:"same"`
		Changes []planChange `json:"changes"`
	}
	planChange struct {
		Section string `json:"section"` // field of the plan
		Item    string `json:"item,omitempty"`
		Change  string `json:"change"` // "added", "removed" or "changed"
		// Fields are the names of those that differ; none of what is added or removed.
		Fields []string `json:"fields"`
		Before fields   `json:"before,omitempty"`
		After  fields   `json:"after,omitempty"`

		lines []string // for people, of what is added or removed
	}
	// fields are an item as the JSON of plan has it.
	fields map[string]any
)

// showDiff prints what turns one plan into another. The error is errSilent if that is anything.
func (p *planCall) showDiff(w io.Writer, from, to string, old, now agent.NodePlan) error {
	d := planDiff{Node: p.node, From: from, To: to, Changes: changes(old, now)}
	d.Same = len(d.Changes) == 0
	if err := show(p.agentFlags, w, d, printDiff); err != nil || d.Same {
		return err
	}
	return errSilent
}

// planItem is a part of a plan that comes, goes or changes as one.
type planItem struct {
	section, name string
	fields        fields
	lines         []string
}

// itemsOf takes a plan apart.
func itemsOf(p agent.NodePlan) []planItem {
	var out []planItem
	add := func(section, name string, v any, lines ...string) {
		out = append(out, planItem{section, name, fieldsOf(v), lines})
	}
	add("node", "", struct {
		Waiting  string `json:"waiting,omitempty"`
		HandsOff bool   `json:"handsOff"`
	}{p.Waiting, p.HandsOff})
	if p.Speaker != nil {
		add("speaker", "", p.Speaker, fmt.Sprintf("AS %d, router ID %s, port %d on %s",
			p.Speaker.AS, p.Speaker.RouterID, p.Speaker.ListenPort,
			orAll(p.Speaker.ListenAddresses)))
	}
	for _, peer := range p.Peers {
		add("peers", peer.Peer.String(), peer, peerLines(peer)...)
		delete(out[len(out)-1].fields, "differs") // it follows from the rest
	}
	for _, a := range p.Announcements {
		add("announcements", a.Prefix.String(), a, announcementText(a))
	}
	for _, wh := range p.Withheld {
		text := fmt.Sprintf("%s is not announced: %s", wh.Prefix, wh.Reason)
		add("withheld", text, wh, text)
	}
	for _, f := range p.Filters {
		add("filters", f.Name, f, filterLines(f)...)
	}
	add("policies", "", p.Policies)
	for _, prefix := range p.NotProgrammed {
		add("notProgrammed", prefix.String(), struct {
			Prefix string `json:"prefix"`
		}{prefix.String()}, prefix.String())
	}
	for _, problem := range p.Problems {
		add("problems", problem.String(), problem, problem.String())
	}
	return out
}

func filterLines(f agent.PlannedFilter) []string {
	lines := []string{f.Name}
	for _, list := range []struct {
		name  string
		rules []string
	}{{"importV4", f.ImportV4}, {"importV6", f.ImportV6}, {"exportV4", f.ExportV4},
		{"exportV6", f.ExportV6}} {
		for i, r := range list.rules {
			lines = append(lines, fmt.Sprintf("  %s[%d]: %s", list.name, i, r))
		}
	}
	return lines
}

// fieldsOf returns a value as JSON has it.
func fieldsOf(v any) fields {
	var out fields
	text, err := json.Marshal(v)
	if err == nil {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber() // a LOCAL_PREF is not to become 2.147482623e+09
		err = d.Decode(&out)
	}
	if err != nil {
		panic(fmt.Sprintf("plan: %T: %v", v, err))
	}
	return out
}

// changes returns what turns one plan into another: by section, what goes or changes before what
// comes.
func changes(old, now agent.NodePlan) []planChange {
	return itemChanges(itemsOf(old), itemsOf(now))
}

func itemChanges(before, after []planItem) []planChange {
	type key struct{ section, name string }
	wanted, known := map[key]planItem{}, map[key]bool{}
	for _, i := range after {
		wanted[key{i.section, i.name}] = i
	}
	out := []planChange{}
	for _, i := range before {
		k := key{i.section, i.name}
		known[k] = true
		to, stays := wanted[k]
		c := planChange{Section: i.section, Item: i.name, Fields: []string{}, Before: i.fields,
			After: to.fields}
		switch {
		case !stays:
			c.Change, c.lines = "removed", i.lines
		case reflect.DeepEqual(i.fields, to.fields):
			continue
		default:
			c.Change, c.Fields = "changed", differing(i.fields, to.fields)
		}
		out = append(out, c)
	}
	for _, i := range after {
		if !known[key{i.section, i.name}] {
			out = append(out, planChange{Section: i.section, Item: i.name, Change: "added",
				Fields: []string{}, After: i.fields, lines: i.lines})
		}
	}
	order := map[string]int{}
	for _, i := range slices.Concat(before, after) {
		if _, ok := order[i.section]; !ok {
			order[i.section] = len(order)
		}
	}
	slices.SortStableFunc(out, func(a, b planChange) int {
		return order[a.Section] - order[b.Section]
	})
	return out
}

func differing(a, b fields) []string {
	var out []string
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(a[name], b[name]) {
			out = append(out, name)
		}
	}
	return out
}

// printDiff writes changes in the form of diff.
func printDiff(w io.Writer, d planDiff) error {
	if d.Same {
		return nil
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "--- %s\n+++ %s\n", d.From, d.To)
	section := ""
	for _, c := range d.Changes {
		if c.Section != section {
			section = c.Section
			fmt.Fprintf(b, "@@ %s @@\n", section)
		}
		switch c.Change {
		case "added":
			writeMarked(b, "+", c.lines)
		case "removed":
			writeMarked(b, "-", c.lines)
		default:
			if c.Item != "" {
				fmt.Fprintf(b, "  %s\n", c.Item)
			}
			for _, name := range c.Fields {
				gone, come := valueLines(name, c.Before[name], c.After[name])
				writeMarked(b, "-", gone)
				writeMarked(b, "+", come)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeMarked(b *strings.Builder, mark string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "%s %s\n", mark, line)
	}
}

// valueLines are the lines of a field that go and that come: of lists the elements between what
// both have at their begin and at their end.
func valueLines(name string, old, now any) (gone, come []string) {
	a, isList := old.([]any)
	b, areLists := now.([]any)
	if !isList || !areLists {
		return valueLine(name, old), valueLine(name, now)
	}
	first := 0
	for first < min(len(a), len(b)) && reflect.DeepEqual(a[first], b[first]) {
		first++
	}
	last := 0
	for last < min(len(a), len(b))-first &&
		reflect.DeepEqual(a[len(a)-1-last], b[len(b)-1-last]) {
		last++
	}
	for i := first; i < len(a)-last; i++ {
		gone = append(gone, valueLine(fmt.Sprintf("%s[%d]", name, i), a[i])...)
	}
	for i := first; i < len(b)-last; i++ {
		come = append(come, valueLine(fmt.Sprintf("%s[%d]", name, i), b[i])...)
	}
	return gone, come
}

// valueLine is nothing where there is no value.
func valueLine(name string, v any) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case fields, map[string]any, []any:
		text, _ := json.Marshal(v) // which it came from
		return []string{fmt.Sprintf("  %s: %s", name, text)}
	}
	return []string{fmt.Sprintf("  %s: %v", name, v)}
}
