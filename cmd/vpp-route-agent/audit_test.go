package main

import (
	"slices"
	"testing"

	"vpp-route-agent/internal/audit"
)

// What is found once alone changed while it was read.
func TestInBoth(t *testing.T) {
	found := func(k audit.Kind, item, text string) audit.Finding {
		return audit.Finding{Kind: k, Item: item, Text: text}
	}
	first := []audit.Finding{found(audit.OrphanBlock, "10.1.0.0/26", "2 addresses"),
		found(audit.Drift, "a", "1 route"), found(audit.OrphanBlock, "10.1.1.0/26", "")}
	second := []audit.Finding{found(audit.OrphanBlock, "10.1.0.0/26", "3 addresses"),
		found(audit.NotApplied, "a", ""), found(audit.OrphanBlock, "10.1.2.0/26", "")}
	var got []string
	for _, f := range inBoth(first, second) {
		got = append(got, string(f.Kind)+" "+f.Item+" "+f.Text)
	}
	if !slices.Equal(got, []string{"orphan-block 10.1.0.0/26 3 addresses"}) {
		t.Error(got)
	}
}
