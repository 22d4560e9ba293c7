// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"cmp"
	"time"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
)

// writeTime is how long a write may take without progress. Without a limit, what is queued for a
// peer that does not read would stay. Where the peer is silent, too, its hold timer ends first:
// then its paths are not kept.
func writeTime(conf *oc.Neighbor) time.Duration {
	hold := conf.Timers.State.NegotiatedHoldTime
	if hold == 0 { // the configuration is not looked at without need: it may be changed meanwhile
		hold = cmp.Or(conf.Timers.Config.HoldTime, oc.DEFAULT_HOLDTIME)
	}
	return time.Duration(hold)*time.Second + lastChance
}
