// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/internal/pkg/table"
)

// OwnPath is a path of our own.
type OwnPath struct {
	*api.Path
	// Static: it goes before all paths that peers send, whatever LOCAL_PREF they have.
	Static bool
}

// ChangePaths announces paths of our own, and withdraws those with IsWithdraw, in one step, so that
// they share messages. If one of them cannot be read, none is taken.
func (s *BgpServer) ChangePaths(paths []OwnPath) error {
	all := make([]*table.Path, 0, len(paths))
	for _, p := range paths {
		path, err := api2Path(api.TableType_GLOBAL, p.Path, p.IsWithdraw)
		if err != nil {
			return err
		}
		path.SetStatic(p.Static)
		all = append(all, path)
	}
	if len(all) == 0 {
		return nil
	}
	return s.updatePath("", all)
}
