package netlab

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// BirdConfig is the configuration of a BIRD 1.6 node like calico-node's BIRD (a fork of 1.6.8), for
// one address family: bird for IPv4, bird6 for IPv6.
type BirdConfig struct {
	RouterID netip.Addr // IPv4 also for bird6
	// the node's address: source of all sessions, and NEXT_HOP of its own routes. Its family is the
	// node's
	Address netip.Addr
	AS      uint32
	Port    uint16 // listening; 0: 179

	// own blocks with a confirmed affinity, each a blackhole unless it is a single address
	Blocks []netip.Prefix
	// announced addresses of services, without routes in the kernel to them or inside their ranges
	Services []netip.Prefix
	Pools    []BirdPool
	Peers    []BirdPeer
	Cluster  netip.Addr // cluster id where this node is a route reflector; zero: it is not

	// Extra is text in BIRD's own language, such as protocols of routers outside of Calico.
	Extra string
}

// BirdPool is an IP pool. Routes inside it are announced unless the pool disables that.
type BirdPool struct {
	Prefix           netip.Prefix
	DisableBGPExport bool
}

// BirdPeer is a session.
type BirdPeer struct {
	Name        string // as confd names protocols: "Mesh_10_0_0_2"; letters, digits and underscores
	Address     netip.Addr
	Port        uint16 // 0: 179
	AS          uint32
	Passive     bool
	Client      bool           // of this route reflector
	Password    string         // TCP MD5; "": none
	RestartTime *time.Duration // nil: BIRD's 120 s
	HoldTime    time.Duration  // that we offer; 0: BIRD's 240 s, which no Calico resource changes
}

// MeshPeer is a mesh session between two addresses. It is passive if the peer's address is the
// greater string (not number).
func MeshPeer(self, peer netip.Addr, as uint32) BirdPeer {
	return BirdPeer{Name: "Mesh_" + birdName(peer), Address: peer, AS: as,
		Passive: peer.String() > self.String()}
}

// birdName converts an address to a part of a protocol's name.
func birdName(a netip.Addr) string {
	return strings.NewReplacer(".", "_", ":", "_").Replace(a.String())
}

// Calico ≥ 3.32 maps a route's metric (lower is better) to LOCAL_PREF (higher is better) and back.
const (
	birdTopPreference  = 2147483647
	birdNormalPriority = 1024
)

// String returns the configuration file.
func (c BirdConfig) String() string {
	w := &birdWriter{}
	c.writeGlobal(w)
	c.writeFilters(w) // BIRD knows only what is written above
	c.writeProtocols(w)
	for _, p := range c.Peers {
		c.writePeer(w, p)
	}
	w.line("%s", c.Extra)
	return w.String()
}

type birdWriter struct{ strings.Builder }

func (w *birdWriter) line(format string, args ...any) {
	fmt.Fprintf(&w.Builder, format+"\n", args...)
}

func (c BirdConfig) writeGlobal(w *birdWriter) {
	w.line("log stderr all;")
	w.line("router id %s;", c.RouterID)
	if c.Port != 0 {
		w.line("listen bgp port %d;", c.Port)
	}
}

func (c BirdConfig) writeProtocols(w *birdWriter) {
	w.line("protocol device { scan time 2; }")
	w.line(`protocol direct { interface -"cali*", -"kube-ipvs*", "*"; }`)
	w.line("protocol static own_blocks {")
	for _, b := range c.Blocks {
		if !b.IsSingleIP() { // announced only while a workload's own route is there
			w.line("  route %s blackhole;", b)
		}
	}
	for _, s := range c.Services {
		w.line("  route %s blackhole;", s)
	}
	w.line("}")
	w.line("protocol kernel {")
	w.line("  learn;") // workloads' routes are Felix'
	w.line("  persist;")
	w.line("  scan time 2;")
	w.line("  graceful restart;")
	w.line("  merge paths on;")
	w.line("  import all;")
	w.line("  export filter to_kernel;")
	w.line("}")
}

func (c BirdConfig) writeFilters(w *birdWriter) {
	// A BGP route gets the metric of its LOCAL_PREF. LOCAL_PREF 100 loses to all others.
	w.line("filter to_kernel {")
	w.line("  if source = RTS_BGP then krt_metric = %d - bgp_local_pref;", birdTopPreference)
	w.line("  if source = RTS_DEVICE then reject;")
	for _, s := range c.Services {
		w.line("  if net ~ [ %s ] then reject;", within(s))
	}
	w.line("  accept;")
	w.line("}")
	w.line("function set_preference() {")
	w.line("  if source != RTS_BGP then {")
	w.line("    bgp_local_pref = %d;", birdTopPreference-birdNormalPriority)
	w.line("    if defined(krt_metric) then { if krt_metric > 0 then bgp_local_pref = %d - "+
		"krt_metric; }", birdTopPreference)
	w.line("  }")
	w.line("}")
	w.line("filter to_peers {")
	w.line("  set_preference();")
	for _, p := range c.Pools {
		if p.DisableBGPExport {
			w.line("  if net ~ [ %s ] then reject;", within(p.Prefix))
		}
	}
	for _, b := range c.Blocks {
		// The block itself, and inside it only what must win over a local workload elsewhere (a
		// better metric than normal).
		w.line("  if net = %s then accept;", b)
		w.line("  if net ~ [ %s ] then { if bgp_local_pref > %d then accept; reject; }", within(b),
			birdTopPreference-birdNormalPriority)
	}
	for _, s := range c.Services {
		w.line("  if net ~ [ %s ] then accept;", within(s))
	}
	for _, p := range c.Pools {
		if !p.DisableBGPExport {
			w.line("  if net ~ [ %s ] then accept;", within(p.Prefix))
		}
	}
	w.line("  reject;")
	w.line("}")
}

// within returns BIRD's pattern for a prefix and everything inside it.
func within(p netip.Prefix) string {
	return fmt.Sprintf("%s{%d,%d}", p, p.Bits(), p.Addr().BitLen())
}

func (c BirdConfig) writePeer(w *birdWriter, p BirdPeer) {
	port, restart := p.Port, 2*time.Minute
	if port == 0 {
		port = 179
	}
	if p.RestartTime != nil {
		restart = *p.RestartTime
	}
	w.line("protocol bgp %s {", p.Name)
	w.line("  local as %d;", c.AS)
	w.line("  neighbor %s port %d as %d;", p.Address, port, p.AS)
	w.line("  source address %s;", c.Address)
	w.line("  multihop;")
	w.line("  gateway recursive;")
	w.line("  add paths on;")
	w.line("  graceful restart;")
	w.line("  graceful restart time %d;", int(restart.Seconds()))
	w.line("  connect delay time 2;")
	w.line("  connect retry time 5;")
	w.line("  error wait time 5, 30;")
	if p.HoldTime != 0 {
		w.line("  hold time %d;", int(p.HoldTime.Seconds()))
	}
	if p.Passive {
		w.line("  passive on;")
	}
	if p.Password != "" {
		w.line("  password %q;", p.Password)
	}
	if p.Client && c.Cluster.IsValid() {
		w.line("  rr client;")
		w.line("  rr cluster id %s;", c.Cluster)
	}
	w.line("  import all;")
	w.line("  export filter to_peers;")
	w.line("}")
}
