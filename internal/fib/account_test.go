package fib

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

func describeAccounts(all []Account) string {
	var b strings.Builder
	for _, a := range all {
		fmt.Fprintf(&b, "%s %s %s\n", a.Key, a.Origin, a.State)
		for _, c := range a.Claims {
			fmt.Fprintf(&b, " %s %d", c.Origin, c.Distance)
			if c.Chosen {
				fmt.Fprint(&b, " chosen")
			}
			if c.Reason != (Reason{}) {
				fmt.Fprintf(&b, ": %s", c.Reason)
			}
			fmt.Fprintln(&b)
			for _, w := range c.Paths {
				fmt.Fprintf(&b, "  %v by %v %q connected %t used %v %s\n", w.Path, w.Match, w.Owner,
					w.Connected, w.Used, w.Reason)
			}
		}
	}
	return b.String()
}

func TestAccount(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("198.51.100.0/24")] = true
		r.dp.foreign[key("203.0.113.0/24")] = false
		r.SetRoutes(route.Etcd, []route.Route{
			{Key: key("10.1.0.64/26"), Paths: via("10.0.0.2")},
			{Key: key("10.1.0.5/32"), Paths: via("10.0.0.3")},
		})
		r.Learn(pfx("10.1.0.64/26"), via("10.0.1.2", "203.0.113.7"))
		r.Learn(pfx("10.1.0.0/16"), via("198.51.100.7"))
		r.Learn(pfx("10.0.0.1/32"), via("198.51.100.7")) // this node's address
		time.Sleep(time.Minute)
		keys := []route.Key{key("10.1.0.64/26"), key("10.1.0.5/32"), key("10.1.0.0/24"),
			key("10.1.0.0/16"), key("10.0.0.1/32")}
		const want = `10.1.0.64/26 bgp programmed
 bgp 20 chosen: next hop 203.0.113.7 is reached by 203.0.113.0/24, which does not forward
  10.0.1.2 by 10.0.1.0/24 "" connected true used [10.0.1.2 eth1] 
  203.0.113.7 by 203.0.113.0/24 "" connected false used [] next hop 203.0.113.7 is reached by ` +
			`203.0.113.0/24, which does not forward
 etcd 250: BGP covers it with 10.1.0.0/16
  10.0.0.2 by 10.0.0.0/24 "" connected true used [10.0.0.2 eth0] 
10.1.0.5/32 etcd unusable
 etcd 250: BGP covers it with 10.1.0.0/16
  10.0.0.3 by 10.0.0.0/24 "" connected true used [10.0.0.3 eth0] 
10.1.0.0/16 bgp programmed
 bgp 20 chosen
  198.51.100.7 by 198.51.100.0/24 "" connected false used [198.51.100.7] 
10.0.0.1/32 bgp unusable
 bgp 20: it would be the longest match for 10.0.0.1, this node's address on eth0
  198.51.100.7 by 198.51.100.0/24 "" connected false used [198.51.100.7] 
`
		if got := describeAccounts(r.Account(keys)); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		first, n := r.Inside(pfx("10.1.0.0/16"), 1)
		if n != 2 || len(first) != 1 || first[0].Key != key("10.1.0.5/32") {
			t.Errorf("inside are %d, the first %+v", n, first)
		}
	})
}

// Nothing is known of paths before the data plane has been seen.
func TestAccountWithoutFacts(t *testing.T) {
	e := New(Config{})
	e.Learn(BestPaths{Prefix: pfx("10.1.0.0/16"), Paths: via("10.0.0.2")})
	if got := e.Account([]route.Key{key("10.1.0.0/16")}); len(got) != 0 {
		t.Errorf("what is still to be taken in is shown: %+v", got)
	}
	e.work()
	got := describeAccounts(e.Account([]route.Key{key("10.1.0.0/16")}))
	if got != "10.1.0.0/16 bgp pending\n" {
		t.Errorf("got %q", got)
	}
}
