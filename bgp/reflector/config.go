package reflector

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"vpp-route-agent/internal/selector"
)

// Topology says which clients peer with which reflectors.
type Topology string

const (
	// Single: one cluster ID, and every client peers with every reflector.
	Single Topology = "single"
	// Quorum: one cluster ID, and every client peers with so many reflectors that any two clients
	// have two in common.
	Quorum Topology = "quorum"
	// Multi: a cluster ID each, and every client peers with three: one in its zone, one in another,
	// and any.
	Multi Topology = "multi"
)

// Config says how reflectors are chosen. The zero Config has every default.
type Config struct {
	Topology Topology `json:"topology,omitempty"` // default: Single
	// ClusterID (default: 224.0.0.1) is that of all reflectors. With Multi it is the first's; the
	// others have those that follow it.
	ClusterID string `json:"clusterID,omitempty"`
	// Label marks reflectors, with the value "true"; default: vpp-route-agent/route-reflector.
	Label string `json:"label,omitempty"`
	// ZoneLabel is the label with a node's zone; default: topology.kubernetes.io/zone.
	ZoneLabel string `json:"zoneLabel,omitempty"`
	// Ratio is the number of reflectors per node, at least Min (default: 3) and at most Max
	// (default and limit: 100). Without Ratio there are 3, and from 100 nodes on one more for
	// every 100.
	Ratio float64 `json:"ratio,omitempty"`
	Min   int     `json:"min,omitempty"`
	Max   int     `json:"max,omitempty"`
	// Pool selects the nodes that may be reflectors; empty: all. With WholePool all of them are.
	// Avoid selects nodes that may not.
	Pool      string `json:"pool,omitempty"`
	WholePool bool   `json:"wholePool,omitempty"`
	Avoid     string `json:"avoid,omitempty"`
	// Bird: nodes with BIRD may be reflectors, after the agents of their zone.
	Bird bool `json:"bird,omitempty"`
	// GraceSeconds (default: 60) is how long most sessions with a node must be down before it
	// counts as dead. LimitSeconds (default: 600) is how long a step may take before it is undone.
	GraceSeconds int `json:"graceSeconds,omitempty"`
	LimitSeconds int `json:"limitSeconds,omitempty"`
}

// rules is a Config with its defaults, parsed.
type rules struct {
	Config
	pool, avoid  selector.Selector
	grace, limit time.Duration
}

const (
	minReflectors = 3
	// A step compares every reflector, and etcd at most 128 keys in a transaction.
	maxReflectors = 100
	// The count falls only if it would also be lower with a tenth more nodes.
	marginDivisor = 10
	// Gates and graces are a matter of minutes; a week is as good as never.
	maxSeconds = 7 * 24 * 3600
)

// parse fills in the defaults. The error names the fields that cannot be followed.
func (c Config) parse() (rules, error) {
	c.Topology = cmp.Or(c.Topology, Single)
	c.ClusterID = cmp.Or(c.ClusterID, "224.0.0.1")
	c.Label = cmp.Or(c.Label, "vpp-route-agent/route-reflector")
	c.ZoneLabel = cmp.Or(c.ZoneLabel, "topology.kubernetes.io/zone")
	c.Min, c.Max = cmp.Or(c.Min, minReflectors), cmp.Or(c.Max, maxReflectors)
	c.GraceSeconds, c.LimitSeconds = cmp.Or(c.GraceSeconds, 60), cmp.Or(c.LimitSeconds, 600)
	r := rules{
		Config: c,
		grace:  time.Duration(c.GraceSeconds) * time.Second,
		limit:  time.Duration(c.LimitSeconds) * time.Second,
	}
	var errs []error
	bad := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	switch c.Topology {
	case Single:
	case Quorum, Multi:
		bad(c.Bird, "bird: with topology %q no node with BIRD can be a reflector", c.Topology)
	case "hierarchical":
		bad(true, "topology: %q is not built yet; use %q, %q or %q", c.Topology, Single, Quorum,
			Multi)
	default:
		bad(true, "topology: %q is unknown; use %q, %q or %q", c.Topology, Single, Quorum, Multi)
	}
	id, err := netip.ParseAddr(c.ClusterID)
	bad(err != nil || !id.Is4(), "clusterID: %.64q is not a dotted quad", c.ClusterID)
	bad(err == nil && c.Topology == Multi && id.Is4() && id.Compare(lastFirstID) > 0,
		"clusterID: with topology %q it may be at most %s, as the next ones follow", Multi,
		lastFirstID)
	// BIRD reads it as its own router ID, GoBGP literally.
	bad(id == netip.IPv4Unspecified(), "clusterID: 0.0.0.0 means a different ID on each BIRD")
	for _, l := range [][2]string{{"label", c.Label}, {"zoneLabel", c.ZoneLabel}} {
		bad(!isLabelKey(l[1]), "%s: %.64q is not a label", l[0], l[1])
	}
	bad(c.Label == c.ZoneLabel, "label: %s is the zone's label, too", c.Label)
	for _, own := range []string{numberLabel, groupLabel} {
		bad(c.Label == own || c.ZoneLabel == own, "label and zoneLabel: %s marks something else",
			own)
	}
	bad(c.Ratio < 0 || c.Ratio > 1 || math.IsNaN(c.Ratio), "ratio: %v is not within 0 and 1",
		c.Ratio)
	bad(c.Min < 1, "min: %d is less than 1", c.Min)
	bad(c.Max < c.Min, "max: %d is less than min, %d", c.Max, c.Min)
	bad(c.Max > maxReflectors, "max: %d is more than %d", c.Max, maxReflectors)
	bad(c.WholePool && c.Pool == "", "wholePool: no pool is given")
	for _, s := range []struct {
		field string
		value int
	}{{"graceSeconds", c.GraceSeconds}, {"limitSeconds", c.LimitSeconds}} {
		bad(s.value < 1 || s.value > maxSeconds, "%s: %d is not within 1 and %d", s.field,
			s.value, maxSeconds)
	}
	for _, s := range []struct {
		field, text string
		into        *selector.Selector
	}{{"pool", c.Pool, &r.pool}, {"avoid", c.Avoid, &r.avoid}} {
		if s.text != "" {
			*s.into, err = selector.Parse(s.text)
			bad(err != nil, "%s: %v", s.field, err)
			for _, label := range []string{c.Label, numberLabel, groupLabel} {
				bad(s.into.Names(label), "%s: it depends on %s, which marks those that are chosen",
					s.field, label)
			}
		}
	}
	return r, errors.Join(errs...)
}

// WithDefaults fills in what a Config leaves out.
func (c Config) WithDefaults() Config {
	r, _ := c.parse()
	return r.Config
}

// Grace is GraceSeconds, or its default; that of a Config that cannot be followed, too.
func (c Config) Grace() time.Duration {
	r, _ := c.parse()
	return r.grace
}

// A key's prefix, which it need not have, is a DNS subdomain (RFC 1123); its name has up to 63
// letters, digits, dashes, underscores and dots, as apimachinery's IsQualifiedName checks.
var (
	prefixForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?` +
		`(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	nameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

// isLabelKey reports whether a Node can have a label of that key, and a selector can name it.
func isLabelKey(key string) bool {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		prefix, name = "x", key
	}
	return len(prefix) <= 253 && prefixForm.MatchString(prefix) && nameForm.MatchString(name) &&
		isLabel(key)
}

// isLabel reports whether a selector can name the label.
func isLabel(label string) bool {
	_, err := selector.Parse("has(" + label + ")")
	return err == nil && !strings.ContainsAny(label, " \t()")
}

// count is the number of reflectors that n nodes shall have, of which there are current ones now.
func (r rules) count(n, current int) int {
	wanted := r.countFor(n)
	if wanted < current {
		return min(current, r.countFor(n+max(1, n/marginDivisor)))
	}
	return wanted
}

func (r rules) countFor(n int) int {
	wanted := minReflectors
	switch {
	case r.Ratio > 0:
		wanted = int(math.Ceil(float64(n) * r.Ratio))
	case n >= 100:
		wanted += n / 100
	}
	return min(max(wanted, r.Min), r.Max)
}

// perNode is with how many of some reflectors a client peers.
func (r rules) perNode(reflectors int) int {
	switch r.Topology {
	case Quorum:
		// 2m - n >= 2: any two clients have two in common, so that one may die.
		return min(reflectors, (reflectors+3)/2)
	case Multi:
		return min(reflectors, minReflectors)
	}
	return reflectors
}

// lastFirstID leaves a number to each reflector that ever replaces another.
var lastFirstID = netip.AddrFrom4([4]byte{255, 239, 255, 255})

// clusterIDOf is that of the reflector with a number, from 1.
func (r rules) clusterIDOf(number int) string {
	id, err := netip.ParseAddr(r.ClusterID)
	if r.Topology != Multi || err != nil || !id.Is4() {
		return r.ClusterID
	}
	b := id.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(number-1))
	return netip.AddrFrom4(b).String()
}
