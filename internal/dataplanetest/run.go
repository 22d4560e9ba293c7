package dataplanetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"vpp-route-agent/internal/route"
)

// Run runs every case of the suite on s, one after another, and says on what and how many. After
// each case nothing of ours may be left and everybody else's entries must be what they were.
func Run(t *testing.T, s Setup) {
	t.Attr("part", s.Name)
	b := newBench(t, &s)
	ran, skipped := 0, 0
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if why, lacks := s.Lacks[c.needs]; lacks {
				skipped++
				t.Skipf("%s has no %s: %s", s.Name, c.needs, why)
			}
			before, tables, links := b.Dump(t), b.tables(t), b.links()
			c.run(t, b)
			b.clear(t)
			b.facts.await(t, fmt.Sprint("interfaces ", links), func(route.Facts) bool {
				return slices.Equal(b.links(), links)
			})
			if left := b.tables(t); !slices.Equal(left, tables) {
				t.Errorf("there were tables %d before the case, there are %d after it",
					tables, left)
			}
			// A restart gives its entries new numbers, so only the keys must be the same then.
			if after := b.Dump(t); !sameEntries(before, after, c.needs == Connection) {
				t.Errorf("the FIB before the case:\n%safter it:\n%s",
					printed(before), printed(after))
			}
			ran++
		})
	}
	if want := len(cases) - skipped; ran != want || ran == 0 {
		t.Errorf("%d of %d cases ran", ran, want)
	}
	fmt.Printf("data plane conformance: %s, %d cases, %d not applicable\n", s.Name, ran, skipped)
}

// clear deletes all that is ours, and then its tables.
func (b *bench) clear(t *testing.T) {
	t.Helper()
	left, err := b.Dataplane.Routes(b.context(t))
	if err != nil {
		t.Fatalf("routes: %v", err)
	}
	var keys []route.Key
	for _, r := range left {
		keys = append(keys, r.Key)
	}
	b.delete(t, keys...)
	b.has(t)
	if _, lacks := b.Lacks[Tables]; !lacks {
		b.deleteTables(t)
	}
}

// links returns the names of the interfaces in the newest facts. What a case deletes is gone for
// the next case once it is gone from them.
func (b *bench) links() (names []string) {
	for _, i := range b.facts.last.Interfaces {
		names = append(names, i.Name)
	}
	return names
}

func sameEntries(a, b map[route.Key]string, keysOnly bool) bool {
	return maps.EqualFunc(a, b, func(x, y string) bool { return keysOnly || x == y })
}

func printed(m map[route.Key]string) string {
	s := ""
	for k, v := range m {
		s += fmt.Sprintf("  %s: %s\n", k, v)
	}
	return s
}
