package recorder

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// The changes of surroundings, one after the other, are the surroundings again, and one service or
// node of thousands takes little.
func TestChangesOfSurroundings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	address := func(n int) netip.Addr {
		return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
	}
	some := func() (s fib.Surroundings) {
		for i := range 9 {
			if rng.IntN(2) == 0 {
				s.Services = append(s.Services, route.HostPrefix(address(i)))
			}
		}
		if rng.IntN(4) > 0 {
			s.Encapsulation = &route.Encapsulation{}
			for i := range 9 {
				if rng.IntN(2) == 0 {
					s.Encapsulation.Nodes = append(s.Encapsulation.Nodes,
						route.Node{Address: address(i), Name: fmt.Sprint(rng.IntN(2))})
				}
			}
		}
		s.Converging, s.Normal[0] = rng.IntN(2) == 0, rng.Uint32N(2)
		s.Own = []netip.Addr{address(rng.IntN(2))}
		return s
	}
	change := func(before, after fib.Surroundings) (c SurroundingsChange, size int) {
		t.Helper()
		whole, err := surroundingsChange(before, after)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(whole)
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c, len(text)
	}
	var before, replayed fib.Surroundings
	for range 500 {
		after := some()
		if rng.IntN(3) == 0 {
			after.Encapsulation = before.Encapsulation
		}
		c, _ := change(before, after)
		var err error
		if replayed, err = c.After(replayed); err != nil || !reflect.DeepEqual(replayed, after) {
			t.Fatalf("the surroundings are\n%+v instead of\n%+v, %v", replayed, after, err)
		}
		before = after
	}
	many := fib.Surroundings{Encapsulation: &route.Encapsulation{}}
	for i := range 3000 {
		many.Encapsulation.Nodes = append(many.Encapsulation.Nodes, route.Node{Address: address(i)})
		many.Services = append(many.Services, route.HostPrefix(address(i)))
	}
	more := fib.Surroundings{Encapsulation: &route.Encapsulation{Nodes: append(
		many.Encapsulation.Nodes, route.Node{Address: address(3000)})}}
	more.Services = append(many.Services, route.HostPrefix(address(3000)))
	if _, size := change(many, more); size > 1000 {
		t.Errorf("a service and a node of 3000 take %d bytes", size)
	}
}
