package main

import (
	"errors"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp/vpptest"
)

// vppLab is a VPP, and what the agent asked of it.
type vppLab struct {
	server *vpptest.Server

	mu      sync.Mutex // guards what follows: the server asks from its own goroutines
	ops     []string   // carried out, since they were last asked for
	refused map[string]int32
}

// refusal sees each message before it is carried out, and may refuse it.
func (v *vppLab) refusal(m api.Message) int32 {
	change, ok := m.(*ip.IPRouteAddDelV2)
	if !ok {
		return 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	prefix := change.Route.Prefix.String()
	verb := "delete"
	if change.IsAdd {
		verb = "put"
	}
	if retval := v.refused[prefix]; retval != 0 {
		return retval
	}
	v.ops = append(v.ops, verb+" "+prefix)
	return 0
}

var vppCommand = verbs(map[string]command{
	"start":     vppStart,
	"kill":      vppDo(func(s *vpptest.Server) { s.CloseSocket() }),
	"reconnect": vppDo(func(s *vpptest.Server) { s.DropConnections() }),
	"hang":      vppDo(func(s *vpptest.Server) { s.Stall() }),
	"continue":  vppDo(func(s *vpptest.Server) { s.Continue() }),
	"refuse":    vppRefuse,
	"accept":    vppAccept,
	"foreign":   vppForeign,
	"forget":    vppForget,
	"routes":    vppRoutes,
	"fib":       vppFIB,
	"ops":       vppOps,
	"address":   vppAddress,
	"link":      vppLink,
	"addresses": vppAddresses,
	"links":     vppLinks,
	"tunnels":   vppTunnels,
	"vxlan":     vppVXLAN,
	"lack":      vppLack,
	"count":     vppCount,
	"forward":   vppForward,
	"receive":   vppReceive,
})

// vpp start: an empty VPP; after vpp kill its next generation, which is empty.
func vppStart(sc *script, _ []string) (string, error) {
	if sc.vpp != nil {
		return "", sc.vpp.server.Restart(addMemif)
	}
	server, err := vpptest.Start(sc.path("vpp.sock"))
	if err != nil {
		return "", err
	}
	sc.vpp = &vppLab{server: server, refused: map[string]int32{}}
	server.Refuse(sc.vpp.refusal)
	addMemif(server)
	return "", nil
}

// addMemif makes memif0, which leads to the other nodes, and memif1, which nobody has set up.
func addMemif(s *vpptest.Server) {
	s.AddInterface("memif0", netip.MustParsePrefix("10.9.0.1/24"),
		netip.MustParsePrefix("fd09::1/64"))
	s.AddInterface("memif1")
	s.SetLink("memif1", false)
}

// vpp address INTERFACE ADDRESS: somebody else sets an address, and makes the interface first where
// there is none.
func vppAddress(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp address INTERFACE ADDRESS")
	}
	a, err := netip.ParsePrefix(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	if slices.Contains(v.server.Interfaces(), args[0]) {
		v.server.AddAddress(args[0], a)
	} else {
		v.server.AddInterface(args[0], a)
	}
	return "", nil
}

// vpp link INTERFACE up|down: somebody else sets an interface up or down.
func vppLink(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp link INTERFACE up|down")
	}
	v.server.SetLink(args[0], args[1] == "up")
	return "", nil
}

// vpp addresses FILE INTERFACE: whether the interface is up, and its addresses.
func vppAddresses(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp addresses FILE INTERFACE")
	}
	up, addresses := v.server.Interface(args[1])
	words := []string{"down"}
	if up {
		words[0] = "up"
	}
	for _, a := range addresses {
		words = append(words, a.String())
	}
	slices.Sort(words[1:])
	return sc.compare([]string{strings.Join(words, " ")}, args[0])
}

// vpp links FILE: all interfaces, ours as "made NAME".
func vppLinks(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 1 {
		return "", usage("vpp links FILE")
	}
	var rows []string
	for _, name := range v.server.Interfaces() {
		rows = append(rows, ourTag.ReplaceAllString(name, "made "))
	}
	slices.Sort(rows)
	return sc.compare(rows, args[0])
}

// vpp tunnels FILE INTERFACE: the nodes to which an interface of ours leads.
func vppTunnels(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp tunnels FILE INTERFACE")
	}
	var rows []string
	for _, a := range v.server.Endpoints(args[1]) {
		rows = append(rows, a.String())
	}
	return sc.compare(rows, args[0])
}

// vpp vxlan FILE: the tunnels of VXLAN of ours.
func vppVXLAN(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 1 {
		return "", usage("vpp vxlan FILE")
	}
	return sc.compare(v.server.VXLANTunnels(), args[0])
}

// vpp count routes|hops|nothing: its statistics segment is there from now on; its counters of next
// hops are on; they are off.
func vppCount(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 1 {
		return "", usage("vpp count routes|hops|nothing")
	}
	if args[0] == "routes" {
		return "", v.server.ServeStats()
	}
	v.server.CountByHop(args[0] == "hops")
	return "", nil
}

// vpp forward PREFIX N: it forwards packets by its entry for the prefix.
func vppForward(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp forward PREFIX N")
	}
	p, err := netip.ParsePrefix(args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	n, err := strconv.Atoi(args[1])
	v.server.Forward(route.Key{Prefix: p}, n)
	return "", err
}

// vpp receive ADDRESS N: packets come in by the VXLAN tunnel to the node with that address.
func vppReceive(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp receive ADDRESS N")
	}
	a, err := netip.ParseAddr(args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	n, err := strconv.Atoi(args[1])
	v.server.Receive(a, n)
	return "", err
}

// vpp lack MESSAGE...: it does not have these, for connections made from now on.
func vppLack(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err == nil {
		v.server.Lack(args...)
	}
	return "", err
}

// ourTag is the mark of an interface of ours, but for its name.
var ourTag = regexp.MustCompile(`^vra:[^:]+:`)

func (sc *script) theVPP() (*vppLab, error) {
	if sc.vpp == nil {
		return nil, usage("vpp start comes first")
	}
	return sc.vpp, nil
}

func vppDo(f func(*vpptest.Server)) command {
	return func(sc *script, args []string) (string, error) {
		v, err := sc.theVPP()
		if err != nil || len(args) > 0 {
			return "", usage("no arguments, and after vpp start")
		}
		f(v.server)
		return "", nil
	}
}

// vpp refuse PREFIX RETVAL: writes of that prefix are refused with that return value.
func vppRefuse(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp refuse PREFIX RETVAL")
	}
	retval, err := strconv.Atoi(args[1])
	if err != nil || retval >= 0 {
		return "", usage("%q is not a return value of VPP", args[1])
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refused[args[0]] = int32(retval)
	return "", nil
}

// vpp accept: nothing is refused any more.
func vppAccept(sc *script, _ []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.refused)
	return "", nil
}

// vpp foreign SOURCE PREFIX drop|none|NEXTHOP: a route of somebody else's, or its end.
func vppForeign(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 3 {
		return "", usage("vpp foreign SOURCE PREFIX drop|none|NEXTHOP")
	}
	prefix, err := netip.ParsePrefix(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	r := route.Route{Key: route.Key{Prefix: prefix}, Kind: route.Drop}
	if args[2] == "none" {
		v.server.RemoveForeignRoute(args[0], r.Key)
		return "", nil
	}
	if args[2] != "drop" {
		hop, err := netip.ParseAddr(args[2])
		if err != nil {
			return "", usage("%v", err)
		}
		r.Kind, r.Paths = route.Via, route.CanonicalPaths(
			[]route.Path{{NextHop: hop, Interface: "memif0"}})
	}
	v.server.InjectForeignRoute(args[0], r)
	return "", nil
}

// vpp forget PREFIX: somebody removes our route, over a connection that wrote under our source.
func vppForget(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 1 {
		return "", usage("vpp forget PREFIX")
	}
	prefix, err := netip.ParsePrefix(args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	v.server.RemoveForeignRoute("vpp-route-agent", route.Key{Prefix: prefix})
	return "", nil
}

// vpp routes FILE: what VPP has under our FIB source.
func vppRoutes(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 1 {
		return "", usage("vpp routes FILE")
	}
	var rows []string
	for _, r := range v.server.Routes("vpp-route-agent") {
		rows = append(rows, r.String())
	}
	return sc.compare(rows, args[0])
}

// vpp fib FILE PREFIX: what forwards inside PREFIX, whoever put it there.
func vppFIB(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 2 {
		return "", usage("vpp fib FILE PREFIX")
	}
	within, err := netip.ParsePrefix(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	fib := v.server.Dump()
	var rows []string
	for _, k := range slices.SortedFunc(maps.Keys(fib), route.CompareKeys) {
		if within.Overlaps(k.Prefix) && k.Prefix.Bits() >= within.Bits() {
			rows = append(rows, ourSource.ReplaceAllString(fib[k], "vpp-route-agent: "))
		}
	}
	return sc.compare(rows, args[0])
}

// vpp ops FILE: the writes that VPP carried out since this was last asked, sorted: which of several
// comes first is not told.
func vppOps(sc *script, args []string) (string, error) {
	v, err := sc.theVPP()
	if err != nil || len(args) != 1 {
		return "", usage("vpp ops FILE")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out, err := sc.compare(slices.Sorted(slices.Values(v.ops)), args[0])
	var d *differs
	if errors.As(err, &d) {
		d.accepted = func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.ops = nil
		}
	}
	if err == nil {
		v.ops = nil
	}
	return out, err
}

// ourSource is a FIB source of ours as VPP lists it: the first with a number that is another in
// each generation of VPP.
var ourSource = regexp.MustCompile(`^vpp-route-agent@([0-9a-f]+|elevated): `)
