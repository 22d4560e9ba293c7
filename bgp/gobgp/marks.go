package gobgp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
)

// mark is a note on a path: a verdict that was reached on import, for export to carry out. GoBGP never withdraws what a new export policy rejects,
// unless the path itself was replaced: it asks the policy of now whether the path of before had been sent. So export looks at marks
// alone, and another verdict is another mark, brought by a soft reset in.
//
// Hence a rule for every statement of the export policy: a path without the mark passes. What a mark means may not change while paths have it; what
// stands for content that changes gets a new number then.
//
// Marks are large communities under a global administrator that is reserved. Extended communities would not do: of an inverted condition on them GoBGP
// regards only the last community. What comes with such communities from outside loses them, and no path leaves with one.
type mark struct{ group, value uint32 }

const (
	groupCommon    = 0  // of all peers: see below
	groupImport    = 1  // rejected (0) or operations by an import filter; gone when import is done
	groupAdvertise = 2  // the communities of a prefix advertisement, by number
	firstClass     = 16 // rejected (0) or operations, for the peers of a class
)

var (
	markRejected      = mark{groupCommon, 1} // by the rules that are the same for all peers
	markFromClient    = mark{groupCommon, 2} // may be reflected to every iBGP peer
	markFromNonClient = mark{groupCommon, 3} // may be reflected to clients
	markOutsideOnly   = mark{groupCommon, 4} // of our own: not for iBGP peers of the plain class
)

func (m mark) String() string {
	return fmt.Sprintf("%d:%d:%d", uint32(bgp.ReservedGlobal), m.group, m.value)
}

// pattern matches the mark, patternOf all marks of a group, anyMark all of them.
func (m mark) pattern() string { return "^" + m.String() + "$" }

func patternOf(group uint32) string { return fmt.Sprintf("^%d:%d:", uint32(bgp.ReservedGlobal), group) }

var anyMark = fmt.Sprintf("^%d:", uint32(bgp.ReservedGlobal))

// numbers gives numbers to contents: the same number to the same content, never one that another had. 0 is kept for "rejected".
type numbers map[string]uint32

func (n numbers) of(content string) uint32 {
	if _, ok := n[content]; !ok {
		n[content] = uint32(len(n)) + 1
	}
	return n[content]
}

// operations returns the number of a list of operations.
func (n numbers) operations(ops []bgp.Operation) uint32 {
	var b strings.Builder
	for _, op := range ops {
		if op.Add != nil {
			fmt.Fprintf(&b, "add %s;", op.Add)
		} else {
			fmt.Fprintf(&b, "prepend %v pref %d;", op.Prepend, op.LocalPref)
		}
	}
	return n.of(b.String())
}

// advertisement returns the mark of a prefix's communities.
func (n numbers) advertisement(a bgp.Advertisement) mark {
	return mark{groupAdvertise, n.of(fmt.Sprint("advertise ", a.Communities))}
}

// verdict is the mark of what a filter said for a class, or for an import.
func (n numbers) verdict(group uint32, accept bool, ops []bgp.Operation) mark {
	if !accept {
		return mark{group, 0}
	}
	return mark{group, n.operations(ops)}
}

// marksOf are the marks of a route of our own, sorted: the verdicts of bgp.Policies for each class.
func (p policy) marksOf(a bgp.Announcement) []mark {
	var out []mark
	if a.OnlyByFilter {
		out = append(out, markRejected)
	}
	if p.pass.OutsideOnly(a.Route()) {
		out = append(out, markOutsideOnly)
	}
	for _, adv := range p.pass.Advertisements {
		if adv.Covers(a.Prefix) {
			out = append(out, p.numbers.advertisement(adv))
		}
	}
	for _, c := range p.classes {
		if c.number == 0 || c.peer.Address.Is4() != a.Prefix.Addr().Is4() {
			continue
		}
		switch v := p.pass.Export(a.Route(), c.peer); {
		case v.Rule != "":
			out = append(out, p.numbers.verdict(c.number, v.Accept, v.Operations))
		case !v.Accept:
			out = append(out, mark{c.number, 0})
		}
	}
	slices.SortFunc(out, func(a, b mark) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.value, b.value)) })
	return slices.Compact(out)
}
