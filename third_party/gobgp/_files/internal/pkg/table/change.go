// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// Change is what a policy does to the attributes of a path. It is not edited once a path has it.
type Change struct {
	Communities      []uint32              // added, unless the path has them
	LargeCommunities []*bgp.LargeCommunity // likewise
	Prepend          []uint32              // the first of them becomes the first of AS_PATH
	LocalPref        uint32                // 0: as it is
}

// Changed returns path with the change; path itself where there is none.
func (path *Path) Changed(c *Change) *Path {
	if c == nil {
		return path
	}
	p := path.Clone(false)
	p.Apply(c)
	return p
}

// Apply makes the change on a path that nobody else has yet.
func (path *Path) Apply(c *Change) {
	if c == nil {
		return
	}
	if had := path.GetCommunities(); len(c.Communities) > 0 {
		for _, added := range c.Communities {
			if !slices.Contains(had, added) {
				had = append(had, added)
			}
		}
		path.setPathAttr(bgp.NewPathAttributeCommunities(had))
	}
	if had := path.GetLargeCommunities(); len(c.LargeCommunities) > 0 {
		for _, added := range c.LargeCommunities {
			if !slices.ContainsFunc(had, added.Eq) {
				had = append(had, added)
			}
		}
		path.setPathAttr(bgp.NewPathAttributeLargeCommunities(had))
	}
	for _, as := range slices.Backward(c.Prepend) {
		path.PrependAsn(as, 1, false)
	}
	if c.LocalPref != 0 {
		path.setPathAttr(bgp.NewPathAttributeLocalPref(c.LocalPref))
	}
}

// WithNexthopInvalid returns path, or the same path with the other mark.
func (path *Path) WithNexthopInvalid(invalid bool) *Path {
	if path.IsNexthopInvalid == invalid {
		return path
	}
	p := *path
	p.IsNexthopInvalid = invalid
	return &p
}

// Shared returns an attribute that only the paths of one message have, which are alike but for
// their prefixes; nil if this path was changed since.
func (path *Path) Shared() bgp.PathAttributeInterface {
	p := path
	for p.parent != nil && len(p.pathAttrs) == 0 && len(p.dels) == 0 {
		p = p.parent
	}
	if p.parent != nil || len(p.dels) > 0 || len(p.pathAttrs) == 0 {
		return nil
	}
	if _, one := p.pathAttrs[0].(*bgp.PathAttributeMpReachNLRI); one {
		return nil
	}
	return p.pathAttrs[0]
}
