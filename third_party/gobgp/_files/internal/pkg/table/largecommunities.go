// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// largePattern is a regular expression on large communities. Of one that says no more than what the first numbers are, which those of vpp-route-agent
// all are, the numbers are compared; for others the community is printed and searched, as GoBGP does for all.
type largePattern struct {
	exp     *regexp.Regexp
	numbers [3]uint32
	known   int // so many of numbers; 0: the expression says something else
}

// largePatternOf knows ^a:b:c$, also with anchors twice, which GoBGP puts around what has three numbers; ^a:b: and ^a:.
func largePatternOf(exp *regexp.Regexp) largePattern {
	other := largePattern{exp: exp}
	text := strings.TrimLeft(exp.String(), "^")
	if len(text) == len(exp.String()) {
		return other
	}
	p := other
	for p.known < 2 {
		digits, rest, ok := strings.Cut(text, ":")
		if !ok || !p.add(digits) {
			return other
		}
		if text = rest; text == "" {
			return p
		}
	}
	if digits := strings.TrimRight(text, "$"); len(digits) == len(text) || !p.add(digits) {
		return other
	}
	return p
}

// add takes the next number. With leading zeros it is none: no community is printed so.
func (p *largePattern) add(digits string) bool {
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || len(digits) > 1 && digits[0] == '0' {
		return false
	}
	p.numbers[p.known] = uint32(n)
	p.known++
	return true
}

func (p *largePattern) matches(c *bgp.LargeCommunity) bool {
	switch p.known {
	case 1:
		return c.ASN == p.numbers[0]
	case 2:
		return c.ASN == p.numbers[0] && c.LocalData1 == p.numbers[1]
	case 3:
		return c.ASN == p.numbers[0] && c.LocalData1 == p.numbers[1] && c.LocalData2 == p.numbers[2]
	}
	return p.exp.MatchString(c.String())
}

// hasLarge reports whether one of the communities matches.
func hasLarge(all []*bgp.LargeCommunity, exp *regexp.Regexp) bool {
	p := largePatternOf(exp)
	for _, c := range all {
		if p.matches(c) {
			return true
		}
	}
	return false
}

// withoutLarge returns the communities that match none of the expressions, in a list of its own.
func withoutLarge(all []*bgp.LargeCommunity, exps []*regexp.Regexp) []*bgp.LargeCommunity {
	patterns := make([]largePattern, len(exps))
	for i, exp := range exps {
		patterns[i] = largePatternOf(exp)
	}
	left := make([]*bgp.LargeCommunity, 0, len(all))
	for _, c := range all {
		if !slices.ContainsFunc(patterns, func(p largePattern) bool { return p.matches(c) }) {
			left = append(left, c)
		}
	}
	return left
}

// sharedLargeCommunities returns what GetLargeCommunities returns a copy of.
func (path *Path) sharedLargeCommunities() []*bgp.LargeCommunity {
	if a := path.getPathAttr(bgp.BGP_ATTR_TYPE_LARGE_COMMUNITY); a != nil {
		return a.(*bgp.PathAttributeLargeCommunities).Values
	}
	return nil
}
