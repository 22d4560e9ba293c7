package kubernetes

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

// Whatever the API server does, what is known stays as it is, and what changed meanwhile is seen
// once the server is well again.
func TestFaultsChangeNothing(t *testing.T) {
	for _, tc := range []struct {
		name     string
		hurt     func(*kubetest.Server)
		status   string // says it; "": the source works on
		meantime bool   // what changes is seen while it lasts
		heal     func(*kubetest.Server)
	}{
		{"every watch ends at once", (*kubetest.Server).EndWatches, "", true, nil},
		{"410 on resume", (*kubetest.Server).Compact, "", true, nil},
		{"watches that end each second", func(s *kubetest.Server) { s.WatchesLive(time.Second) },
			"", true, func(s *kubetest.Server) { s.WatchesLive(0) }},
		{"bookmarks", (*kubetest.Server).Bookmarks, "", true, nil},
		{"events that are no JSON", func(s *kubetest.Server) { s.Garble([]byte("?")) }, "", true,
			func(s *kubetest.Server) { s.Garble(nil) }},
		{"events without a version", func(s *kubetest.Server) {
			s.Garble([]byte(`{"type":"MODIFIED","object":{"metadata":{}}}`))
		}, "", true, func(s *kubetest.Server) { s.Garble(nil) }},
		{"watches that end with 500", func(s *kubetest.Server) {
			s.Garble([]byte(`{"type":"ERROR","object":{"kind":"Status","code":500}}`))
		}, "", true, func(s *kubetest.Server) { s.Garble(nil) }},
		{"429", func(s *kubetest.Server) { s.Refuse(http.StatusTooManyRequests) },
			"429 Too Many Requests", false, func(s *kubetest.Server) { s.Refuse(0) }},
		{"500", func(s *kubetest.Server) { s.Refuse(http.StatusInternalServerError) },
			"500 Internal Server Error", false, func(s *kubetest.Server) { s.Refuse(0) }},
		{"504", func(s *kubetest.Server) { s.Refuse(http.StatusGatewayTimeout) },
			"504 Gateway Timeout", false, func(s *kubetest.Server) { s.Refuse(0) }},
		{"401", func(s *kubetest.Server) { s.SetToken("another") }, "401 Unauthorized", false,
			func(s *kubetest.Server) { s.SetToken(kubetest.Token) }},
		{"403", func(s *kubetest.Server) { s.Refuse(http.StatusForbidden) }, "403 Forbidden", false,
			func(s *kubetest.Server) { s.Refuse(0) }},
		{"half of the requests", func(s *kubetest.Server) { s.RefuseEach(2, 503, 0) }, "", true,
			func(s *kubetest.Server) { s.Refuse(0) }},
		{"frozen", func(s *kubetest.Server) { s.Freeze(true) }, "no answer within 5s", false,
			func(s *kubetest.Server) { s.Freeze(false) }},
		{"lists lag behind, after 410", func(s *kubetest.Server) {
			s.Lag(false)
			putNode(s, "newer", "172.30.8.99/24")
			s.DeleteObject("nodes", "newer")
			s.Compact()
		}, "", true, (*kubetest.Server).Catch},
		{"lists lag behind and deny it, after 410", func(s *kubetest.Server) {
			s.Lag(true)
			putNode(s, "newer", "172.30.8.99/24")
			s.DeleteObject("nodes", "newer")
			s.Compact()
		}, "", true, (*kubetest.Server).Catch},
		{"back empty", func(s *kubetest.Server) {
			s.Restore(kubetest.Empty())
			s.EndWatches()
		}, "what it had before stays in use", false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			saved := s.Save()
			r := run(t, s)
			before := content(r.until(t, "the first", any1))
			r.untilStatus(t, "connected", connected)
			tc.hurt(s)
			if tc.status != "" {
				r.untilStatus(t, tc.status, says(tc.status))
			}
			change := func(name string) {
				put(s, "bgppeers", name, `{"peerIP":"192.0.2.9","asNumber":65000}`)
			}
			ignore := func(x calico.Snapshot) *calico.Snapshot { // what came and went
				x.Nodes, x.BGPPeers = maps.Clone(x.Nodes), maps.Clone(x.BGPPeers)
				delete(x.Nodes, "newer")
				delete(x.BGPPeers, "after")
				return &x
			}
			if tc.meantime {
				change("meantime")
				r.until(t, "a change meanwhile", hasPeer("meantime"))
				s.DeleteObject(v1("bgppeers"), "meantime")
				r.until(t, "no such peer", func(x *calico.Snapshot) bool {
					return !hasPeer("meantime")(x)
				})
				if now := content(ignore(*r.last)); now != before {
					t.Errorf("got %s\nwant %s", now, before)
				}
			} else {
				r.unchanged(t, before, 300*time.Millisecond)
			}
			if tc.heal == nil {
				if tc.status == "" {
					return
				}
				s.Restore(saved) // it is back, with its data
				s.EndWatches()
			} else {
				tc.heal(s)
			}
			change("after")
			r.until(t, "a change afterwards", hasPeer("after"))
			if now := content(ignore(*r.last)); now != before {
				t.Errorf("afterwards\ngot  %s\nwant %s", now, before)
			}
			r.untilStatus(t, "connected again", connected)
		})
	}
}

// etcd was restored: watches are silent and wait for versions that may never come. It is noticed,
// named, and what etcd has now is taken.
func TestARestoredEtcdIsTakenAsItIs(t *testing.T) {
	s := newServer(t)
	s.DeleteObject(v1("bgppeers"), "tor")
	saved := s.Save()
	put(s, "bgppeers", "tor", `{"peerIP":"192.0.2.1","asNumber":65000}`)
	putNode(s, "edge-11", "172.30.8.11/24")
	for range 20 {
		put(s, "clusterinformations", "default", `{"datastoreReady":true}`)
	}
	r := run(t, s)
	r.until(t, "the first", hasPeer("tor"))
	r.untilStatus(t, "connected", connected)
	s.Slow(100 * time.Millisecond) // longer than a burst
	s.Restore(saved)
	r.until(t, "the older data, complete", func(x *calico.Snapshot) bool {
		if hasPeer("tor")(x) == hasNode("edge-11")(x) {
			return !hasPeer("tor")(x)
		}
		t.Errorf("one kind is published before the other")
		return true
	})
	if r.last.Lists < 2 || !strings.Contains(r.log.String(), "another history") {
		t.Errorf("%d lists; log:\n%s", r.last.Lists, r.log)
	}
	putNode(s, "edge-12", "172.30.8.12/24")
	r.until(t, "a change after that", hasNode("edge-12"))
}

// So it is where only another kind has changed since the backup than the one that is asked for.
func TestARestoreIsNoticedByAnyKindOfCalicos(t *testing.T) {
	s := newServer(t)
	saved := s.Save()
	r := run(t, s)
	r.until(t, "the first", any1)
	put(s, "bgppeers", "since", `{"peerIP":"192.0.2.9","asNumber":65000}`)
	r.until(t, "the peer", hasPeer("since"))
	s.Restore(saved)
	r.until(t, "no such peer", func(x *calico.Snapshot) bool { return !hasPeer("since")(x) })
}

// After a restart a list that is older than what the last good snapshot had is not taken.
func TestNoListIsOlderThanBeforeTheRestart(t *testing.T) {
	for _, lies := range []bool{false, true} {
		s := newServer(t)
		s.Lag(lies) // as of now, without what follows
		put(s, "bgppeers", "newer", `{"peerIP":"192.0.2.9","asNumber":65000}`)
		first := run(t, s)
		versions := first.until(t, "the newer peer", hasPeer("newer")).Versions
		first.stop()
		r := run(t, s, func(c *Config) { c.Versions = versions })
		if x := <-r.Snapshots(); !hasPeer("newer")(x) {
			t.Errorf("lies %t: an older list was taken", lies)
		}
		if strings.Contains(r.log.String(), "restored") {
			t.Errorf("lies %t: an older list was taken for what etcd has:\n%s", lies, r.log)
		}
		if lists := s.ListsOf(v1("bgppeers")); lists > 4 {
			t.Errorf("lies %t: %d lists", lies, lists)
		}
	}
}

// Retry-After is obeyed, and the back-off grows.
func TestTheServerIsLeftAlone(t *testing.T) {
	s := newServer(t)
	r := run(t, s)
	r.until(t, "the first", any1)
	r.untilStatus(t, "connected", connected)
	s.RefuseEach(1, http.StatusTooManyRequests, 30*time.Second)
	r.untilStatus(t, "429", says("429"))
	before := s.Asked("watch", v1("bgppeers"))
	time.Sleep(2 * time.Second)
	if n := s.Asked("watch", v1("bgppeers")); n > before+1 {
		t.Errorf("%d requests within two seconds, where 30 s were asked for", n-before)
	}
}

// rights are those of the ClusterRole that is deployed, where the group is v1: "list nodes".
func rights(t *testing.T) (all []string) {
	text, err := os.ReadFile("../../../deploy/kubernetes-datastore/rbac.yaml")
	must(t, err)
	role, _, _ := strings.Cut(string(text), "\n---\n")
	var r struct {
		Kind  string
		Rules []struct{ APIGroups, Resources, Verbs []string }
	}
	must(t, yaml.Unmarshal([]byte(role), &r))
	for _, rule := range r.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if group != "projectcalico.org" {
						all = append(all, strings.TrimSuffix(verb+" "+resource+"."+group, "."))
					}
				}
			}
		}
	}
	if r.Kind != "ClusterRole" || len(all) != 3*(5+len(kinds)) {
		t.Fatalf("%s: %v", r.Kind, all)
	}
	return all
}

// A right that is missing is named with its verb and resource, what is known stays, and all other
// kinds go on. It is no difference whether it was lost, or missing at a restart.
func TestAMissingRightIsNamedAndBreaksNothingElse(t *testing.T) {
	all := rights(t)
	for _, right := range all {
		if strings.HasPrefix(right, "get ") {
			continue // no request needs it
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			s := newServiceServer(t)
			s.Install("kubevirt.io/v1", "virtualmachineinstancemigrations")
			s.Allow(all)
			r := run(t, s, func(c *Config) { c.ClusterIPs = true })
			before := content(r.until(t, "the first", any1))
			r.untilStatus(t, "connected", connected)
			s.Deny(right, true)
			s.Compact() // else nothing is listed
			r.untilStatus(t, right, says(named(right)+": 403 Forbidden"))
			other := "bgpfilters"
			if strings.Contains(right, other) {
				other = "bgpconfigurations"
			}
			put(s, other, "default", `{}`)
			r.until(t, "a change of another kind", func(x *calico.Snapshot) bool {
				return len(x.BGPFilters)+len(x.BGPConfigurations) == 1
			})
			now := *r.last
			now.BGPFilters, now.BGPConfigurations = map[string]calico.BGPFilter{},
				map[string]calico.BGPConfiguration{}
			if content(&now) != before {
				t.Errorf("got  %s\nwant %s", content(&now), before)
			}
			s.Deny(right, false)
			r.untilStatus(t, "connected again", connected)
		})
	}
}

// A right that is missing from the start is no empty kind.
func TestAMissingRightIsNotEmpty(t *testing.T) {
	for i, right := range []string{"list nodes", "list " + v1("bgpfilters")} {
		s := newServer(t)
		s.Deny(right, true)
		r := run(t, s)
		r.untilStatus(t, right, says(right+": 403 Forbidden"))
		select {
		case x := <-r.Snapshots():
			t.Errorf("%d: published: %+v", i, x)
		case <-time.After(300 * time.Millisecond):
		}
		s.Deny(right, false)
		r.until(t, fmt.Sprint("the first, with ", right), any1)
	}
}

// Without a right from the start, it is named, and no other problem is: all else is read. With the
// right everything is there.
func aRightIsMissingFromTheStart(t *testing.T, s server) {
	all := rights(t)
	s.Allow(all)
	first := run(t, s)
	before := content(first.until(t, "the first", any1))
	first.stop()
	for _, right := range all {
		if strings.HasPrefix(right, "get ") || strings.HasSuffix(right, " services") ||
			strings.HasSuffix(right, sliceKind) || strings.HasSuffix(right, migrationKind) {
			continue // no request needs it; services and migrations have tests of their own
		}
		t.Run(right, func(t *testing.T) {
			s.Deny(right, true)
			r := run(t, s)
			r.untilStatus(t, right, says(named(right)+": 403 Forbidden"))
			if st := r.Status(); strings.Count(st.Error, "403 Forbidden") != 1 {
				t.Errorf("%s", st.Error)
			}
			s.Deny(right, false)
			if now := content(r.until(t, "the first", any1)); now != before {
				t.Errorf("got  %s\nwant %s", now, before)
			}
			r.untilStatus(t, "connected", connected)
			r.stop()
		})
	}
}

// named is how a missing right is named, for edge-7: its block is asked for by name.
func named(right string) string {
	if strings.HasSuffix(right, v1("ipamblocks")) {
		return right + "/10-77-0-0-26"
	}
	return right
}

// A right to watch that is lost is named once the watch ends. Lists show what changes.
func aRightToWatchIsLost(t *testing.T, s server) {
	s.Allow(rights(t))
	r := run(t, s)
	r.until(t, "the first", any1)
	r.untilStatus(t, "connected", connected)
	s.Deny("watch nodes", true)
	r.untilStatus(t, "named", says("watch nodes: 403 Forbidden"))
	putNode(s, "edge-11", "172.30.8.11/24")
	r.until(t, "a node", hasNode("edge-11"))
	put(s, "bgppeers", "meantime", `{"peerIP":"192.0.2.9","asNumber":65000}`)
	r.until(t, "a peer", hasPeer("meantime"))
	s.Deny("watch nodes", false)
	r.untilStatus(t, "connected", connected)
}
