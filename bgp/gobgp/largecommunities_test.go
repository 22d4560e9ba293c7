package gobgp

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

// largeStep is a statement on large communities and nothing else.
type largeStep struct {
	option   api.MatchSet_Type
	patterns []string // of the condition
	action   api.CommunityAction_Type
	list     []string // communities, or patterns of a removal
}

// asGoBGP is the pattern that GoBGP searches communities with.
func asGoBGP(pattern string) *regexp.Regexp {
	if regexp.MustCompile(`\d+:\d+:\d+`).MatchString(pattern) {
		pattern = "^" + pattern + "$"
	}
	return regexp.MustCompile(pattern)
}

// matches is what GoBGP documents: one of the patterns, all of them, or none is found in the text of a community.
func (s largeStep) matches(communities []string) bool {
	found := 0
	for _, p := range s.patterns {
		if slices.ContainsFunc(communities, asGoBGP(p).MatchString) {
			found++
		}
	}
	switch s.option {
	case api.MatchSet_ALL:
		return found == len(s.patterns)
	case api.MatchSet_INVERT:
		return found == 0
	}
	return found > 0
}

func (s largeStep) apply(communities []string) []string {
	if !s.matches(communities) {
		return communities
	}
	switch s.action {
	case api.CommunityAction_ADD:
		return slices.Concat(communities, s.list)
	case api.CommunityAction_REPLACE:
		return slices.Clone(s.list)
	}
	return slices.DeleteFunc(slices.Clone(communities), func(c string) bool {
		return slices.ContainsFunc(s.list, func(p string) bool { return asGoBGP(p).MatchString(c) })
	})
}

// largeNumber draws numbers whose texts begin and end alike.
func largeNumber(t *rapid.T) uint32 {
	return rapid.SampledFrom([]uint32{0, 1, 2, 11, 12, 21, bgp.ReservedGlobal}).Draw(t, "number")
}

func largeText(t *rapid.T) string {
	return fmt.Sprintf("%d:%d:%d", largeNumber(t), largeNumber(t), largeNumber(t))
}

// largePattern draws patterns that are numbers, look like numbers, and others.
func largePattern(t *rapid.T) string {
	a, b, text := largeNumber(t), largeNumber(t), largeText(t)
	return rapid.SampledFrom([]string{
		text, "^" + text + "$", "^" + text, text + "$", "^" + text + "$$", fmt.Sprintf("^%d:", a), fmt.Sprintf("^%d:%d:", a, b),
		fmt.Sprintf("%d:", a), fmt.Sprintf("%d:%d:", a, b), fmt.Sprintf("^%d", a), fmt.Sprintf("^%d:%d", a, b), fmt.Sprintf("^%d:%d:$", a, b), fmt.Sprintf("^%d:$", a),
		fmt.Sprintf(":%d:", a), fmt.Sprintf(":%d$", a), fmt.Sprintf("^0%d:", a), "^0" + text + "$", "^+1:", "^4294967296:", "^4294967297:1:", "^:", "^", "$", "^$", "^1:1:1:",
		text + "|" + largeText(t), "^(" + text + "|" + largeText(t) + ")$", "^[12]+:", "^1?1:", `^\d+:1:\d$`, fmt.Sprintf("^%d:.*:%d$", a, b), "(?m)^1:",
	}).Draw(t, "pattern")
}

func anyLargeStep(t *rapid.T) largeStep {
	s := largeStep{
		option:   rapid.SampledFrom([]api.MatchSet_Type{api.MatchSet_ANY, api.MatchSet_ALL, api.MatchSet_INVERT}).Draw(t, "option"),
		patterns: rapid.SliceOfN(rapid.Custom(largePattern), 1, 3).Draw(t, "patterns"),
		action:   rapid.SampledFrom([]api.CommunityAction_Type{api.CommunityAction_ADD, api.CommunityAction_REMOVE, api.CommunityAction_REPLACE}).Draw(t, "action"),
	}
	list := rapid.Custom(largeText)
	if s.action == api.CommunityAction_REMOVE {
		list = rapid.Custom(largePattern)
	}
	s.list = rapid.SliceOfN(list, 1, 2).Draw(t, "list")
	return s
}

// largePolicies is an import policy of these steps.
func largePolicies(steps []largeStep) *api.SetPoliciesRequest {
	r := &api.SetPoliciesRequest{}
	st := statements{sets: &r.DefinedSets, names: map[string]int{}}
	for _, s := range steps {
		st.add("step", &api.Conditions{LargeCommunitySet: &api.MatchSet{Type: s.option, Name: st.set(api.DefinedType_LARGE_COMMUNITY, "set", s.patterns)}},
			&api.Actions{LargeCommunity: &api.CommunityAction{Type: s.action, Communities: s.list}})
	}
	r.Policies = []*api.Policy{{Name: "import", Statements: st.all}}
	return r
}

// Policies regard and change large communities as text, as GoBGP's documentation has it, with whatever the build does to be quicker.
func TestLargeCommunitiesAsText(t *testing.T) {
	t.Attr("part", "GoBGP 3.37.0 peers on loopback")
	s := server.NewBgpServer(server.LoggerOption(&logger{log: quietLog()}))
	go s.Serve() // for ever, like GoBGP's
	if err := s.StartBgp(t.Context(), &api.StartBgpRequest{Global: global(bgp.Speaker{AS: 64512, RouterID: addr("127.0.0.1")})}); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	assigned := false
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(anyLargeStep), 1, 6).Draw(t, "steps")
		if err := s.SetPolicies(t.Context(), largePolicies(steps)); err != nil {
			t.Fatal(err)
		}
		if !assigned {
			if err := s.SetPolicyAssignment(t.Context(), &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
				Name: "global", Direction: api.PolicyDirection_IMPORT, DefaultAction: api.RouteAction_ACCEPT, Policies: []*api.Policy{{Name: "import"}},
			}}); err != nil {
				t.Fatal(err)
			}
			assigned = true
		}
		for range 3 {
			have := rapid.SliceOfN(rapid.Custom(largeText), 0, 4).Draw(t, "communities")
			want := slices.Clone(have)
			for _, step := range steps {
				want = step.apply(want)
			}
			if got := imported(t, s, have); !slices.Equal(got, want) {
				t.Fatalf("%q became %q, want %q", have, got, want)
			}
		}
	})
}

// imported returns the large communities of a path that came with these, after the import policy.
func imported(t *rapid.T, s *server.BgpServer, communities []string) []string {
	p, err := pathOf(bgp.Announcement{Prefix: pfx("10.0.0.0/26"), NextHop: addr("192.0.2.1")})
	if err != nil {
		t.Fatal(err)
	}
	var all []*packet.LargeCommunity
	for _, text := range communities {
		c, err := packet.ParseLargeCommunity(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if len(all) > 0 {
		b, err := packet.NewPathAttributeLargeCommunities(all).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		p.PattrsBinary = append(p.PattrsBinary, b)
	}
	if _, err := s.AddPath(t.Context(), &api.AddPathRequest{TableType: api.TableType_GLOBAL, Path: p}); err != nil {
		t.Fatal(err)
	}
	paths := 0
	var out []string
	err = s.ListPath(t.Context(), &api.ListPathRequest{TableType: api.TableType_GLOBAL, Family: ipv4Unicast}, func(d *api.Destination) {
		for _, p := range d.Paths {
			paths++
			for _, a := range pathOfAPI(p).Attributes {
				if l, ok := a.(*packet.PathAttributeLargeCommunities); ok {
					for _, c := range l.Values {
						out = append(out, c.String())
					}
				}
			}
		}
	})
	if err != nil || paths != 1 {
		t.Fatalf("%d paths, %v", paths, err)
	}
	return out
}
