package calico

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// contents is what a Store holds: a Snapshot, and what only the Store reads.
type contents struct {
	Snapshot
	cluster map[string]ClusterInformation // the one key "default"
	handles map[string][]netip.Prefix     // of this node's tunnels
	slices  map[string]EndpointSlice      // by "namespace/name"
}

// kinds has an entry for each kind that is read. It is never changed.
var kinds = map[Kind]anyKind{
	KindNode: kind[string, Node]{after: decodeNode, index: Key.name,
		in: func(c *contents) *map[string]Node { return &c.Nodes }},
	KindIPPool: kind[string, IPPool]{decode: decodeIPPool, index: Key.name,
		in: func(c *contents) *map[string]IPPool { return &c.IPPools }},
	KindBlock: kind[netip.Prefix, Block]{decode: decodeBlock, index: Key.cidr,
		in: func(c *contents) *map[netip.Prefix]Block { return &c.Blocks }},
	KindBlockAffinity: kind[netip.Prefix, AffinityState]{decode: decodeAffinity, index: Key.cidr,
		in:   func(c *contents) *map[netip.Prefix]AffinityState { return &c.Affinities },
		read: func(k Key, node string) bool { return k.Owner.Host == node }},
	KindBGPConfiguration: kind[string, BGPConfiguration]{
		decode: decodeBGPConfiguration, index: Key.name,
		in: func(c *contents) *map[string]BGPConfiguration { return &c.BGPConfigurations },
		read: func(k Key, _ string) bool { // Calico ignores all others
			return k.Name == "default" || strings.HasPrefix(k.Name, "node.")
		}},
	KindBGPPeer: kind[string, BGPPeer]{decode: decodeBGPPeer, index: Key.name,
		in: func(c *contents) *map[string]BGPPeer { return &c.BGPPeers }},
	KindBGPFilter: kind[string, BGPFilter]{decode: decodeBGPFilter, index: Key.name,
		in: func(c *contents) *map[string]BGPFilter { return &c.BGPFilters }},
	KindWorkloadEndpoint: kind[string, WorkloadEndpoint]{
		decode: decodeWorkloadEndpoint, index: Key.name,
		in:   func(c *contents) *map[string]WorkloadEndpoint { return &c.WorkloadEndpoints },
		here: func(w WorkloadEndpoint, node string) bool { return w.Node == node }},
	KindLiveMigration: kind[string, LiveMigration]{decode: decodeLiveMigration, index: Key.name,
		in: func(c *contents) *map[string]LiveMigration { return &c.LiveMigrations },
		here: func(m LiveMigration, node string) bool {
			return m.Source.Host == node || m.Target.Host == node || m.Target.Job != ""
		}},
	KindFelixConfiguration: kind[string, FelixConfiguration]{
		decode: decodeFelixConfiguration, index: Key.name,
		in: func(c *contents) *map[string]FelixConfiguration { return &c.Felix },
		read: func(k Key, node string) bool {
			return k.Name == ownFelix(node) || !strings.HasPrefix(k.Name, ownFelix(""))
		},
		here: func(f FelixConfiguration, node string) bool {
			return f.NodeSelector != "" || f.Name == "default" || f.Name == ownFelix(node)
		}},
	KindClusterInformation: kind[string, ClusterInformation]{
		decode: decodeClusterInformation, index: Key.name,
		in:   func(c *contents) *map[string]ClusterInformation { return &c.cluster },
		read: func(k Key, _ string) bool { return k.Name == "default" }},
	KindHandle: kind[string, []netip.Prefix]{decode: decodeHandle, index: Key.name,
		in: func(c *contents) *map[string][]netip.Prefix { return &c.handles },
		read: func(k Key, node string) bool {
			return slices.Contains(tunnelHandles(node), k.Name)
		}},
	KindPeerIP: kind[PeerIP, netip.Addr]{decode: decodePeerIP, index: Key.peerIP,
		in: func(c *contents) *map[PeerIP]netip.Addr { return &c.PeerIPs }},
	KindService: kind[string, Service]{index: Key.name,
		in: func(c *contents) *map[string]Service { return &c.Services }},
	KindEndpointSlice: kind[string, EndpointSlice]{index: Key.name,
		in: func(c *contents) *map[string]EndpointSlice { return &c.slices }},
}

// kind says how items of one kind are decoded, which of them a node reads, and where they are kept.
type kind[K comparable, V any] struct {
	decode func(Key, []byte) (V, error) // nil: it is not in etcd, or there is after
	// after decodes what may keep fields of the item before, which is zero if there was none.
	after func(k Key, value []byte, before V) (V, error)
	index func(Key) K
	in    func(*contents) *map[K]V
	read  func(k Key, node string) bool // nil: each
	here  func(v V, node string) bool   // nil: each; others are as if absent
}

// anyKind is a kind of any types.
type anyKind interface {
	item(k Key, value []byte, before any) Item
	isRead(k Key, node string) bool
	isHere(v any, node string) bool
	empty(c *contents)
	put(c *contents, shared bool, k Key, v any) (changed bool)
	remove(c *contents, shared bool, k Key)
	value(c *contents, k Key) any
}

// Decode returns the item that a value stands for, as etcd has it. k is of a kind that is read.
func Decode(k Key, value []byte) Item { return kinds[k.Kind].item(k, value, nil) }

func (d kind[K, V]) item(k Key, value []byte, before any) Item {
	if d.after == nil {
		v, err := d.decode(k, value)
		return decoded(k, v, err)
	}
	was, _ := before.(V)
	v, err := d.after(k, value, was)
	return decoded(k, v, err)
}

func decoded(k Key, v any, err error) Item {
	var partial partialError
	switch {
	case err == nil || errors.As(err, &partial):
		return Item{Key: k, Value: v, Err: err}
	case errors.Is(err, errAbsent):
		return Item{Key: k}
	}
	return Item{Key: k, Err: err}
}

func (d kind[K, V]) isRead(k Key, node string) bool { return d.read == nil || d.read(k, node) }

func (d kind[K, V]) isHere(v any, node string) bool { return d.here == nil || d.here(v.(V), node) }

func (d kind[K, V]) empty(c *contents) { *d.in(c) = map[K]V{} }

// put reports whether anything changed.
func (d kind[K, V]) put(c *contents, shared bool, k Key, v any) bool {
	id := d.index(k)
	if old, known := (*d.in(c))[id]; known && reflect.DeepEqual(any(old), v) {
		return false
	}
	d.own(c, shared)[id] = v.(V)
	return true
}

func (d kind[K, V]) remove(c *contents, shared bool, k Key) {
	delete(d.own(c, shared), d.index(k))
}

func (d kind[K, V]) value(c *contents, k Key) any {
	if v, known := (*d.in(c))[d.index(k)]; known {
		return v
	}
	return nil
}

// own returns the map to be changed, a copy if it is shared with snapshots.
func (d kind[K, V]) own(c *contents, shared bool) map[K]V {
	if shared {
		*d.in(c) = maps.Clone(*d.in(c))
	}
	if *d.in(c) == nil {
		*d.in(c) = map[K]V{}
	}
	return *d.in(c)
}

// name is the index of resources: "namespace/name" or the name.
func (k Key) name() string {
	if k.Kind.Namespaced() {
		return k.Namespace + "/" + k.Name
	}
	return k.Name
}

func (k Key) cidr() netip.Prefix { return k.CIDR }

func (k Key) peerIP() PeerIP { return PeerIP{Host: k.Name, IPv6: k.IPv6} }
