package vpp

import (
	"fmt"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vpe"

	"vpp-route-agent/internal/route"
)

// needed lists the messages that this package uses. Their names and checksums are compared first:
// VPP silently drops unknown messages.
var needed = []api.Message{
	(*memclnt.ControlPing)(nil), (*memclnt.ControlPingReply)(nil),
	(*vpe.ShowVersion)(nil), (*vpe.ShowVersionReply)(nil),
	(*ip.IPTableDump)(nil), (*ip.IPTableDetails)(nil),
	(*ip.IPTableAddDel)(nil), (*ip.IPTableAddDelReply)(nil),
	(*ip.IPAddressDump)(nil), (*ip.IPAddressDetails)(nil),
	(*interfaces.SwInterfaceDump)(nil), (*interfaces.SwInterfaceDetails)(nil),
	(*interfaces.SwInterfaceGetTable)(nil), (*interfaces.SwInterfaceGetTableReply)(nil),
	(*interfaces.WantInterfaceEvents)(nil), (*interfaces.WantInterfaceEventsReply)(nil),
	(*interfaces.SwInterfaceEvent)(nil),
	(*fib.FibSourceAdd)(nil), (*fib.FibSourceAddReply)(nil),
	(*fib.FibSourceDump)(nil), (*fib.FibSourceDetails)(nil),
	(*ip.IPRouteAddDelV2)(nil), (*ip.IPRouteAddDelV2Reply)(nil),
	(*ip.IPRouteV2Dump)(nil), (*ip.IPRouteV2Details)(nil),
	(*ip.IPRouteLookupV2)(nil), (*ip.IPRouteLookupV2Reply)(nil),
	(*ip_neighbor.IPNeighborAddDel)(nil), (*ip_neighbor.IPNeighborAddDelReply)(nil),
	(*ip_neighbor.IPNeighborDump)(nil), (*ip_neighbor.IPNeighborDetails)(nil),
}

// preflight compares the API of c's VPP with needed.
func preflight(c *conn) route.Preflight {
	p := route.Preflight{Outcome: route.FullAPI, Lacks: c.missing(needed)}
	if len(p.Lacks) > 0 {
		p.Outcome = route.RefusedAPI
	}
	slices.Sort(p.Lacks)
	return p
}

// refusal is the error for a VPP that lacks messages.
type refusal struct {
	version   string
	preflight route.Preflight
}

func (r refusal) Error() string {
	return fmt.Sprintf("%s lacks %s: it is older or newer than this agent's API", r.version,
		strings.Join(r.preflight.Lacks, ", "))
}
