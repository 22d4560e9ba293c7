// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net"

	"golang.org/x/net/netutil"
)

// maxConnections bounds those to one address of the gRPC API.
const maxConnections = 64

func limitConnections(l net.Listener) net.Listener {
	return netutil.LimitListener(l, maxConnections)
}
