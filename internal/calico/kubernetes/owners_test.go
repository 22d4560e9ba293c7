package kubernetes

import (
	"fmt"
	"net/netip"
	"testing"
)

// Blocks of other nodes are no part of a snapshot with BGP. Who asks about one is told all the
// same.
func TestOwners(t *testing.T) {
	s := newServer(t)
	r := run(t, s)
	r.until(t, "a snapshot", any1)
	asked := []netip.Prefix{pfx("10.77.1.0/26"), pfx("10.77.9.0/26")}
	if _, there := r.last.Blocks[asked[0]]; there {
		t.Fatal("the snapshot has a block of another node")
	}
	found, err := r.Owners(t.Context(), asked)
	must(t, err)
	var got []string
	for _, o := range found {
		got = append(got, fmt.Sprint(o.Block.CIDR, o.Block.Owner.Host, o.Affinity,
			len(o.Block.Allocations)))
	}
	if want := "[10.77.1.0/26edge-10confirmed1]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	s.Deny("list "+v1("ipamblocks"), true)
	if _, err := r.Owners(t.Context(), asked); err == nil {
		t.Error("no error without the right to list blocks")
	}
}
