// This file is vpp-route-agent's, not GoBGP's.

package table

// SetStatic has a path of our own go before all paths that peers send, whatever LOCAL_PREF they
// have. BIRD's protocol static does so with its preference (DEF_PREF_STATIC, nest/route.h).
func (path *Path) SetStatic(is bool) { path.OriginInfo().static = is }

func compareByStatic(path1, path2 *Path) *Path {
	switch one, two := path1.OriginInfo().static, path2.OriginInfo().static; {
	case one == two:
		return nil
	case one:
		return path1
	}
	return path2
}
