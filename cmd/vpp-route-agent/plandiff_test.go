package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico/manifest"
)

func planned(t *testing.T, docs []string) agent.NodePlan {
	t.Helper()
	resources, err := manifest.Read([]byte(strings.Join(docs, "---\n")))
	if err != nil {
		t.Fatal(err)
	}
	s, err := manifest.Manifest{Resources: resources}.Snapshot("edge-1", false)
	if err != nil {
		t.Fatal(err)
	}
	return agent.NodePlanOf("edge-1", s, bgp.PlanFor("edge-1", s, bgp.Options{}))
}

// A plan does not differ from itself, and from that of a file with one document less as that does
// from it, the other way round.
func TestDiffGoesBothWays(t *testing.T) {
	docs := planResources()
	all := planned(t, docs)
	if c := changes(all, all); len(c) > 0 {
		t.Errorf("a plan differs from itself: %+v", c)
	}
	sections := map[string]bool{}
	for i := range docs {
		less := planned(t, slices.Delete(slices.Clone(docs), i, i+1))
		there, back := changes(all, less), changes(less, all)
		mirrored := map[string]string{"added": "removed", "removed": "added", "changed": "changed"}
		for _, c := range there {
			sections[c.Section] = true
			if !slices.ContainsFunc(back, func(b planChange) bool {
				return b.Section == c.Section && b.Item == c.Item &&
					b.Change == mirrored[c.Change] && slices.Equal(b.Fields, c.Fields)
			}) {
				t.Errorf("%s: no way back for %+v", docs[i], c)
			}
		}
		if len(there) != len(back) {
			t.Errorf("%s: %d changes there, %d back", docs[i], len(there), len(back))
		}
	}
	for _, want := range []string{"node", "speaker", "peers", "announcements", "filters",
		"policies", "problems"} {
		if !sections[want] {
			t.Errorf("nothing changed in %s: the sample shows too little", want)
		}
	}
}

// Of a list the elements in the middle are shown, by their places in each.
func TestDiffOfAList(t *testing.T) {
	filter := func(rules ...string) agent.NodePlan {
		return agent.NodePlan{Filters: []agent.PlannedFilter{{Name: "f", ImportV4: rules}}}
	}
	for _, c := range []struct{ old, now, want string }{
		{"a b c", "a x c", "-   importV4[1]: b\n+   importV4[1]: x\n"},
		{"a b", "a x y b", "+   importV4[1]: x\n+   importV4[2]: y\n"},
		{"a a a", "a a", "-   importV4[2]: a\n"},
		{"a", "b", "-   importV4[0]: a\n+   importV4[0]: b\n"},
	} {
		var b bytes.Buffer
		d := planDiff{From: "x", To: "y", Changes: changes(filter(strings.Fields(c.old)...),
			filter(strings.Fields(c.now)...))}
		if err := printDiff(&b, d); err != nil {
			t.Fatal(err)
		}
		if want := "--- x\n+++ y\n@@ filters @@\n  f\n" + c.want; b.String() != want {
			t.Errorf("%s -> %s:\n%s\nwant\n%s", c.old, c.now, &b, want)
		}
	}
}
