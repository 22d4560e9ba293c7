package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

func TestSearchRoutes(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := cluster()
		for _, name := range []string{"Worker-3", "worker-4"} { // the same address twice: a mistake
			c.Nodes[name] = calico.Node{Name: name, IPv4: pfx("192.168.4.3/24")}
		}
		n.snapshots <- c
		time.Sleep(time.Second)
		synctest.Wait()
		n.want(t, 0)    // the agent takes the data plane's facts in
		n.want(t, 1000) // 10.0.0.0 to 10.0.3.231; the odd ones cannot be programmed
		etcd, own := route.Etcd, route.Own
		for _, tc := range []struct {
			words  string
			state  fib.State
			origin *route.Origin
			want   int
			first  string
		}{
			{"10.0.", fib.Any, &etcd, 1000, "10.0.0.0/32"},
			{"10.0.3.", fib.Any, nil, 232, "10.0.3.0/32"},
			{"10.0.3.0/28", fib.Any, nil, 16, "10.0.3.0/32"},
			{"10.0.1.7", fib.Any, nil, 1, "10.0.1.7/32"},
			{"192.168.4.3", fib.Any, &etcd, 500, "10.0.0.0/32"}, // the next hop
			{"192.168.4.", fib.Any, &etcd, 500, "10.0.0.0/32"},
			{"wORKER-3 10.0.1.", fib.Any, nil, 128, "10.0.1.0/32"},
			{"eth0", fib.Any, &etcd, 500, "10.0.0.0/32"},
			{"10.0.", fib.Unusable, nil, 500, "10.0.0.1/32"},
			{"", fib.Programmed, &etcd, 500, "10.0.0.0/32"},
			{"via", fib.Any, &etcd, 1000, "10.0.0.0/32"},
			{"drop", fib.Any, &own, 1, ""},
			{"10.0. nowhere", fib.Any, nil, 0, ""},
		} {
			got := n.agent.SearchRoutes(RouteQuery{Words: strings.Fields(tc.words),
				State: tc.state, Origin: tc.origin, Most: 10})
			if got.Count != tc.want || len(got.Routes) != min(tc.want, 10) {
				t.Errorf("%s %s %v: %d, of which %d are shown; want %d", tc.words, tc.state,
					tc.origin, got.Count, len(got.Routes), tc.want)
			} else if tc.first != "" && got.Routes[0].Prefix != pfx(tc.first) {
				t.Errorf("%s %s %v: %s is first", tc.words, tc.state, tc.origin,
					got.Routes[0].Prefix)
			}
		}
		got := n.agent.SearchRoutes(RouteQuery{Words: []string{"10.0.0."}, Most: 10})
		if got.Nodes[addr("192.168.4.3")] != "Worker-3" || got.Routes[1].Reason == "" {
			t.Errorf("%v, %+v", got.Nodes, got.Routes[1])
		}
		next := n.agent.SearchRoutes(RouteQuery{Words: []string{"10.0.0."}, Most: 300,
			After: route.Key{Prefix: got.Routes[9].Prefix}})
		if len(next.Routes) != 246 || next.Routes[0].Prefix != pfx("10.0.0.10/32") {
			t.Errorf("after 10.0.0.9: %d routes, %s first", len(next.Routes),
				next.Routes[0].Prefix)
		}
	})
}
