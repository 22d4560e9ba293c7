package vpp

import (
	"slices"
	"strings"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"

	"vpp-route-agent/internal/route"
)

func TestMarks(t *testing.T) {
	m := mark{strings.Repeat("x", route.MaxLinkName), ^uint64(0)}
	if got := markOf(&interfaces.SwInterfaceDetails{Tag: m.tag() + "\x00"}); got != m {
		t.Errorf("%v, want %v", got, m)
	}
	if n := len(m.tag()); n > 63 {
		t.Errorf("the tag has %d bytes", n)
	}
	for _, tag := range []string{"", "x", "vra:", "vra::x", "vra:AAAAAAAAAAE:", "vra:AAAA:x",
		"host-vra:AAAAAAAAAAE:x"} {
		if got := markOf(&interfaces.SwInterfaceDetails{Tag: tag}); got != (mark{}) {
			t.Errorf("%q is %v", tag, got)
		}
	}
}

func TestNamesOfInterfaces(t *testing.T) {
	ours := func(name string) string { return mark{name, 7}.tag() }
	for _, c := range []struct{ names, tags, want []string }{
		{[]string{"local0", "loop0"}, []string{"", ours("tenant")}, []string{"local0", "tenant"}},
		{[]string{"loop0"}, []string{ours("loop0")}, []string{"loop0"}},
		{[]string{"loop0"}, []string{"another's tag"}, []string{"loop0"}},
		// another program has made loop1 since
		{[]string{"loop0", "loop1"}, []string{ours("loop1"), ""}, []string{"loop0", "loop1"}},
		{[]string{"loop0", "loop1"}, []string{ours("a"), ours("a")}, []string{"a", "loop1"}},
	} {
		var all []*interfaces.SwInterfaceDetails
		for i, name := range c.names {
			all = append(all, &interfaces.SwInterfaceDetails{InterfaceName: name, Tag: c.tags[i]})
		}
		if got := namesOf(all); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.names, got, c.want)
		}
	}
}
