// Package dataplanetest holds the conformance suite of data planes: one body, Run, that every
// implementation of fib.Dataplane passes, be it an in-memory VPP, a real one or the Linux kernel.
// It makes no data plane: the caller's Setup does, and cleans up after itself with t.Cleanup. Only
// tests import it.
package dataplanetest

import (
	"net/netip"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Setup is one data plane made ready: empty of our routes, running, reachable. Its functions are
// given the test of a case: what they make must outlive the case, so it is cleaned up with the
// Cleanup of the caller's own test.
type Setup struct {
	// Name is printed with the number of cases: "vpptest", "VPP 25.10-release", "Linux 6.1.0".
	Name string

	// Dataplane under test; its Run (where it has one) is running. The suite is the one reader of
	// its Facts.
	Dataplane fib.Dataplane

	// Interfaces are up, in table 0, each with one IPv4 and one IPv6 address in subnets of their
	// own. The subnets have room for neighbours .2 to .9; nobody need answer there. The suite uses
	// 198.18.0.0/15 and 2001:db8::/32 for its routes: keep off.
	Interfaces [2]Interface

	// OtherTable exists besides 0, for both families; MissingTable does not (where tables come into
	// being by use: Lacks[Tables]).
	OtherTable, MissingTable uint32

	// AddForeign adds a route that belongs to somebody else, by other means than Dataplane, and
	// returns what removes it again. It goes before ours where the data plane keeps both.
	AddForeign func(t *testing.T, r route.Route) (remove func())

	// AddWorkload is the same for a host route as the CNI plugin has for a workload of this node.
	// It goes before ours that are not elevated.
	AddWorkload func(t *testing.T, r route.Route) (remove func())

	// Dump lists everything that forwards in table 0 and OtherTable, whoever owns it, by other
	// means than Dataplane: by key, in any text that is equal while the entry is. Several entries
	// of one key are joined in a stable order.
	Dump func(t *testing.T) map[route.Key]string

	// Egress says, by other means than Dataplane, by which interfaces packets that match the entry
	// of k leave now, and in what proportion, in lowest terms; empty where none leave. Of an entry
	// that recurses it follows the recursion.
	Egress func(t *testing.T, k route.Key) map[string]int

	// Send sends packets that match the entry of k, whose first address, or the one behind that, is
	// their destination; nil with Lacks[Counters]. CountByHop turns counters of next hops on or
	// off, and NoHopCounts is the error while they are off.
	Send        func(t *testing.T, k route.Key, packets int)
	CountByHop  func(t *testing.T, on bool)
	NoHopCounts error

	// SetLink brings an interface down or up; nil with Lacks[Links]. Addresses stay.
	SetLink func(t *testing.T, name string, up bool)

	// AddLink makes an interface without addresses in a table, and returns what removes it again;
	// nil with Lacks[Tables].
	AddLink func(t *testing.T, table uint32) (name string, remove func())

	// Made returns, by other means than Dataplane, the MAC address of an interface that we have
	// made under a name, and the largest IP packet that leaves by it, in bytes.
	Made func(t *testing.T, name string) (mac string, mtu uint32)

	// TunnelAddresses: endpoints of VXLAN have the far tunnel address, by which routes lead there.
	TunnelAddresses bool

	// HostLink is an interface of the kernel's that nothing in the data plane is bound to.
	HostLink string

	// MemifSocket is the path of a socket to which another program has given a number, and
	// MemifSockets lists, by other means than Dataplane, the paths by number; nil with
	// Lacks[Tables].
	MemifSocket  string
	MemifSockets func(t *testing.T) map[uint32]string

	// Tables lists, by other means than Dataplane, the tables that exist, sorted; nil with
	// Lacks[Tables].
	Tables func(t *testing.T) []uint32

	// Reopen ends Dataplane and returns a new one on the same FIB, as a restarted agent would.
	// Never nil.
	Reopen func(t *testing.T) fib.Dataplane

	// Reconnect makes the data plane drop its connections while it goes on forwarding, and accept
	// new ones; nil with Lacks[Connection].
	Reconnect func(t *testing.T)

	// Restart ends the data plane and starts it anew with the same interfaces, tables and an empty
	// FIB; nil with Lacks[Connection].
	Restart func(t *testing.T)

	// Lacks names what this data plane cannot do by its nature, each with the reason, which is
	// printed. A case that needs one of them must then fail per op with an error and leave the FIB
	// as it was, where that makes sense, or is not run.
	Lacks map[Feature]string
}

// Interface is what the suite needs to know of a link.
type Interface struct {
	Name string
	V4   netip.Prefix // the interface's own address with the length of its subnet
	V6   netip.Prefix
}

// Feature is something that not every data plane has.
type Feature string

const (
	Recursive Feature = "recursive next hops" // a next hop that is looked up in the FIB
	Tables    Feature = "tables to be made"   // a missing table is an error
	Counters  Feature = "counters of routes"  // and of next hops
	// interfaces whose other end is the kernel's
	TAPs Feature = "TAPs"
	// an interface may be connected with others
	CrossConnects Feature = "cross-connects"
	Preference    Feature = "path preference" // paths that stand by
	Tunnels       Feature = "tunnels"         // of IPIP to other nodes, that we make
	VXLAN         Feature = "VXLAN"           // the same
	// an interface may go down and come back under a route
	Links Feature = "routes over dead links"
	// where another's route stands before ours, ours cannot be seen
	Hiding     Feature = "only the best owner shown"
	Overlaps   Feature = "subnets that belong to one interface" // another one's are refused
	Connection Feature = "a connection to lose"                 // the data plane is another process
)
