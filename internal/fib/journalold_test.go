package fib

import (
	"bufio"
	"maps"
	"os"
	"testing"

	"vpp-route-agent/internal/route"
)

// TestJournalOfTheFirstAgentIsRead holds format 1: testdata/journal-1 was written by an agent of
// before the first release. An upgrade that could not read it, or that took its digests for other
// routes, would write every route anew. Whoever changes the format or route.Route.Digest changes
// the version, and this test.
func TestJournalOfTheFirstAgentIsRead(t *testing.T) {
	file, err := os.Open("testdata/journal-1")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found, err := readJournal(bufio.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if found.identity != "life" ||
		!maps.Equal(found.interfaces, meanings{"eth0": {index: 1}, "eth1": {index: 2}}) {
		t.Errorf("identity %q, interfaces %v", found.identity, found.interfaces)
	}
	written := []route.Route{
		drop("10.1.0.0/26"),
		{
			Key: key("10.1.0.64/26"), Kind: route.Via,
			Paths: []route.Path{{NextHop: addr("10.0.0.2"), Interface: "eth0", Weight: 1}},
		},
		{Key: route.Key{Table: 7, Prefix: pfx("10.2.0.0/16")}, Kind: route.Via, Paths: []route.Path{
			{NextHop: addr("10.0.0.2"), Interface: "eth0", Weight: 1},
			{NextHop: addr("10.0.1.3"), Interface: "eth1", Weight: 3}}},
		{
			Key: key("fd00:1::/64"), Kind: route.Via,
			Paths: []route.Path{{NextHop: addr("fd00::2"), Table: 9, Preference: 1, Weight: 1}},
		},
		{
			Key: key("10.3.0.0/26"), Kind: route.Via,
			Paths: []route.Path{{Interface: "eth1", Weight: 1}},
		},
	}
	for _, r := range written {
		if found.unsure[r.Key] || found.digests[r.Key] != r.Digest() {
			t.Errorf("%s: digest %x, unsure %v; want %x",
				r, found.digests[r.Key], found.unsure[r.Key], r.Digest())
		}
	}
	// One op was refused, and the last batch has no outcome.
	for _, k := range []route.Key{key("10.4.0.0/26"), key("10.5.0.0/26")} {
		if !found.unsure[k] {
			t.Errorf("%s is taken for sure", k)
		}
	}
	if len(found.digests) != len(written)+2 {
		t.Errorf("%d routes, want %d", len(found.digests), len(written)+2)
	}
}
