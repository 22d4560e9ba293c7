package recorder

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"vpp-route-agent/internal/route"
)

// The changes of facts, one after the other, are the facts again, and have what has changed alone.
func TestChangesOfFacts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	some := func() (all []route.Interface) {
		for i := range 9 {
			if rng.IntN(3) > 0 {
				all = append(all, route.Interface{Name: fmt.Sprintf("tap%d", i),
					Generation: uint32(rng.IntN(2)), Up: rng.IntN(2) == 0,
					Addresses: []netip.Prefix{pfx(fmt.Sprintf("10.0.%d.1/24", rng.IntN(2)))}})
			}
		}
		return all
	}
	var before, replayed route.Facts
	for i := range 500 {
		after := route.Facts{Identity: fmt.Sprint(i / 100), Interfaces: some(), Elsewhere: some()}
		text, err := json.Marshal(changeOf(before, after))
		if err != nil {
			t.Fatal(err)
		}
		var c FactsChange
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		if replayed = c.After(replayed); !reflect.DeepEqual(replayed, after) {
			t.Fatalf("the facts are\n%+v instead of\n%+v", replayed, after)
		}
		before = after
	}
	one := before
	one.Interfaces = append([]route.Interface{}, before.Interfaces...)
	one.Interfaces[0].Up = !one.Interfaces[0].Up
	c := changeOf(before, one)
	if len(c.Interfaces) != 1 || len(c.Elsewhere)+len(c.Gone)+len(c.GoneElsewhere) > 0 {
		t.Errorf("one interface has changed: %+v", c)
	}
}
