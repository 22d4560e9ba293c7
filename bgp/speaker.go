package bgp

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"vpp-route-agent/internal/calico"
)

const (
	defaultAS   = 64512
	defaultPort = 179
)

// family is an address family. Calico's BIRD runs each as a daemon of its own; here each is a pass
// of its own over the same data.
type family int

const (
	ipv4 family = 4
	ipv6 family = 6
)

var families = [...]family{ipv4, ipv6}

func (f family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// addressOf returns a node's BGP address of family f; without one the node takes no part in BGP for
// that family.
func addressOf(n calico.Node, f family) (netip.Addr, bool) {
	a := n.IPv4.Addr()
	if f == ipv6 {
		a = n.IPv6.Addr()
	}
	return a, a.IsValid() && familyOf(a) == f
}

// globalAS is the AS of every node that has none of its own.
func globalAS(s *calico.Snapshot) uint32 {
	if as := s.BGPConfigurations["default"].ASNumber; as != 0 {
		return as
	}
	return defaultAS
}

// nodeAS is the AS of a node, also of a mesh peer: confd since v3.32 takes the asking node's AS for
// a mesh peer without one, so that nodes of different AS numbers refuse each other's OPEN. We do
// not.
func nodeAS(n calico.Node, s *calico.Snapshot) uint32 {
	if n.ASNumber != 0 {
		return n.ASNumber
	}
	return globalAS(s)
}

// listenPort is the port on which a node's BGP speaker listens, and which its peers dial.
func listenPort(node string, s *calico.Snapshot) uint16 {
	return cmp.Or(listenPortSet(node, s), defaultPort)
}

// listenPortSet is what BGPConfigurations say of listenPort, 0 if they say nothing.
func listenPortSet(node string, s *calico.Snapshot) uint16 {
	return cmp.Or(s.BGPConfigurations["node."+node].ListenPort,
		s.BGPConfigurations["default"].ListenPort)
}

// ChooseRouterID returns the router ID that CALICO_ROUTER_ID asks for: empty is the node's IPv4
// address, "hash" is made from the node's name (confd, hashToIPv4), anything else is a dotted quad.
// A cluster without IPv4 must use one of the latter two.
func ChooseRouterID(asked string, self string, nodeIPv4 netip.Addr) (netip.Addr, error) {
	switch asked {
	case "":
		if !nodeIPv4.Is4() {
			return netip.Addr{}, errors.New(
				`a node without IPv4 address needs a router ID: a dotted quad or "hash"`)
		}
		return nodeIPv4, nil
	case "hash":
		sum := sha256.Sum256([]byte(self))
		if sum[0] > 223 { // not into multicast and reserved space
			sum[0] -= 32
		}
		return netip.AddrFrom4([4]byte(sum[:4])), nil
	}
	id, err := netip.ParseAddr(asked)
	if err != nil || !id.Is4() || id.IsUnspecified() { // RFC 6286 §2.1: not zero
		return netip.Addr{}, fmt.Errorf(`router ID %q is neither a dotted quad nor "hash"`, asked)
	}
	return id, nil
}

// severities are what logSeverityScreen may say, in upper or lower case. Fatal and None leave
// errors in: they are few, and the last thing to do without.
var severities = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warning": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError,
	"none": slog.LevelError,
}

// LogLevel returns the log level that logSeverityScreen asks for at a node; the node's own
// BGPConfiguration goes before the cluster's.
func LogLevel(self string, s *calico.Snapshot) slog.Level {
	level, _ := logLevel(self, s)
	return level
}

func logLevel(self string, s *calico.Snapshot) (slog.Level, []calico.Problem) {
	for _, name := range []string{"node." + self, "default"} {
		asked := s.BGPConfigurations[name].LogSeverityScreen
		if asked == "" {
			continue
		}
		if level, ok := severities[strings.ToLower(asked)]; ok {
			return level, nil
		}
		return slog.LevelInfo, []calico.Problem{
			{
				Resource: "BGPConfiguration(" + name + ")",
				Err:      fmt.Sprintf("logSeverityScreen %q is no severity: Info is used", asked),
			},
		}
	}
	return slog.LevelInfo, nil
}

// badBindMode names a bindMode that means nothing. Then all addresses are listened on, as without
// one.
func badBindMode(s *calico.Snapshot) []calico.Problem {
	switch mode := s.BGPConfigurations["default"].BindMode; mode {
	case "", "None", "NodeIP":
		return nil
	default:
		return []calico.Problem{
			{
				Resource: "BGPConfiguration(default)",
				Err:      fmt.Sprintf("bindMode %q is neither NodeIP nor None: None is used", mode),
				Harmless: true,
			},
		}
	}
}

// speakerFor returns the speaker of a node that has a BGP address.
func speakerFor(n calico.Node, routerID netip.Addr, s *calico.Snapshot) Speaker {
	sp := Speaker{AS: nodeAS(n, s), RouterID: routerID, ListenPort: listenPort(n.Name, s)}
	if s.BGPConfigurations["default"].BindMode == "NodeIP" {
		for _, f := range families {
			if a, ok := addressOf(n, f); ok {
				sp.ListenAddresses = append(sp.ListenAddresses, a)
			}
		}
	}
	return sp
}
