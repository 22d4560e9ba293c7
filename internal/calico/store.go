package calico

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Store turns etcd's keys and values into snapshots for one node. It is not safe for concurrent
// use. Of workload endpoints and affinities it keeps only the node's own, so that its size depends
// on the cluster only where routing does.
//
// A value that cannot be decoded becomes a Problem. An item known before keeps its old value until
// its key is deleted: a bad write to a Node must not end its session. After a restart the old value
// is unknown and the item missing.
type Store struct {
	node   string
	needs  Needs
	ranges []Range // Needs.Ranges

	nodes      table[string, Node]
	pools      table[string, IPPool]
	blocks     table[netip.Prefix, Block]
	affinities table[netip.Prefix, AffinityState]
	configs    table[string, BGPConfiguration]
	peers      table[string, BGPPeer]
	filters    table[string, BGPFilter]
	workloads  table[string, WorkloadEndpoint]
	migrations table[string, LiveMigration]
	felix      table[string, FelixConfiguration]
	notReady   table[string, bool] // the one key "default", true or missing
	peerIPs    table[PeerIP, netip.Addr]
	handles    table[string, []netip.Prefix] // of this node's tunnels

	problems map[string]problem // by etcd key
	sorted   []Problem          // of problems; nil when it must be made anew

	round   int // of listing
	changed bool
}

type problem struct {
	text  string
	round int
}

// NewStore returns an empty store for a node with BGP.
func NewStore(node string) *Store { return NewStoreFor(node, Needs{}) }

// NewStoreFor returns an empty store for the needs of a node.
func NewStoreFor(node string, needs Needs) *Store {
	return &Store{
		node:       node,
		needs:      needs,
		ranges:     slices.Clip(needs.Ranges(node)),
		nodes:      newTable[string, Node](),
		pools:      newTable[string, IPPool](),
		blocks:     newTable[netip.Prefix, Block](),
		affinities: newTable[netip.Prefix, AffinityState](),
		configs:    newTable[string, BGPConfiguration](),
		peers:      newTable[string, BGPPeer](),
		filters:    newTable[string, BGPFilter](),
		workloads:  newTable[string, WorkloadEndpoint](),
		migrations: newTable[string, LiveMigration](),
		felix:      newTable[string, FelixConfiguration](),
		notReady:   newTable[string, bool](),
		peerIPs:    newTable[PeerIP, netip.Addr](),
		handles:    newTable[string, []netip.Prefix](),
		problems:   map[string]problem{},
		changed:    true,
	}
}

// Put sets the value of key.
func (s *Store) Put(key string, value []byte) {
	if rest, ok := s.ofHosts(key); ok {
		s.putPeerIP(rest, key, value)
		return
	}
	k, err := s.parse(key)
	if err != nil {
		s.report(key, err)
		return
	}
	switch k.Kind {
	case KindNode:
		v, err := decodeNode(k.Name, value)
		apply(s, &s.nodes, k.Name, key, v, err)
	case KindIPPool:
		v, err := decodeIPPool(k.Name, value)
		apply(s, &s.pools, k.Name, key, v, err)
	case KindBlock:
		v, err := decodeBlock(k.CIDR, value)
		dropHandles(v.Allocations, s.node)
		apply(s, &s.blocks, k.CIDR, key, v, err)
	case KindBlockAffinity:
		if k.Owner.Host == s.node {
			v, err := decodeAffinity(value)
			apply(s, &s.affinities, k.CIDR, key, v, err)
		}
	case KindHandle:
		if slices.Contains(tunnelHandles(s.node), k.Name) {
			v, err := decodeHandle(value)
			apply(s, &s.handles, k.Name, key, v, err)
		}
	case KindBGPConfiguration:
		if k.Name == "default" || strings.HasPrefix(k.Name, "node.") { // Calico ignores all others
			v, err := decodeBGPConfiguration(k.Name, value)
			apply(s, &s.configs, k.Name, key, v, err)
		}
	case KindBGPPeer:
		v, err := decodeBGPPeer(k.Name, value)
		apply(s, &s.peers, k.Name, key, v, err)
	case KindBGPFilter:
		v, err := decodeBGPFilter(k.Name, value)
		apply(s, &s.filters, k.Name, key, v, err)
	case KindWorkloadEndpoint:
		s.putWorkload(k, key, value)
	case KindLiveMigration:
		v, err := decodeLiveMigration(k.Namespace, k.Name, value)
		if err == nil && v.Source.Host != s.node && v.Target.Host != s.node {
			err = errAbsent
		}
		apply(s, &s.migrations, k.Namespace+"/"+k.Name, key, v, err)
	case KindFelixConfiguration:
		if k.Name == "default" || k.Name == "node."+s.node {
			v, err := decodeFelixConfiguration(k.Name, value)
			apply(s, &s.felix, k.Name, key, v, err)
		}
	case KindClusterInformation:
		if k.Name == "default" {
			v, err := decodeNotReady(value)
			apply(s, &s.notReady, k.Name, key, v, err)
		}
	}
}

// ofHosts returns the part of key after Needs.Hosts.
func (s *Store) ofHosts(key string) (rest string, ok bool) {
	if s.needs.Hosts == "" {
		return "", false
	}
	return strings.CutPrefix(key, s.needs.Hosts)
}

// parse is ParseKey with Needs.Blocks.
func (s *Store) parse(key string) (Key, error) {
	if s.needs.Blocks != "" {
		if rest, ok := strings.CutPrefix(key, s.needs.Blocks); ok {
			return ParseKey(blockPath + rest)
		}
	}
	return ParseKey(key)
}

func (s *Store) putPeerIP(rest, key string, value []byte) {
	k, err := parsePeerIP(rest)
	switch {
	case errors.Is(err, errOthers):
	case err != nil:
		s.report(key, err)
	default:
		v, err := decodePeerIP(k, value)
		apply(s, &s.peerIPs, k, key, v, err)
	}
}

// putWorkload keeps an endpoint of this node. Nearly all belong to other nodes, so a value that
// does not contain our name is not decoded. (JSON escapes no character of a node name.)
func (s *Store) putWorkload(k Key, key string, value []byte) {
	id := k.Namespace + "/" + k.Name
	_, known := s.workloads.items[id]
	if !known && !bytes.Contains(value, []byte(s.node)) {
		s.clear(key)
		return
	}
	v, err := decodeWorkloadEndpoint(k.Namespace, k.Name, value)
	if err == nil && v.Node != s.node {
		err = errAbsent
	}
	apply(s, &s.workloads, id, key, v, err)
}

// dropHandles drops the handles of other nodes' allocations, which are unused and most of a large
// cluster's memory.
func dropHandles(all []Allocation, node string) {
	for i := range all {
		if all[i].Node != node {
			all[i].Handle = ""
		}
	}
}

// apply stores a decoder's result for key in t.
func apply[K comparable, V any](s *Store, t *table[K, V], id K, key string, v V, err error) {
	from, known := t.origin[id]
	var partial partialError
	switch {
	case known && from.key != key && !errors.Is(err, errAbsent):
		s.report(key, fmt.Errorf("key: names the same as %s, which counts", from.key))
		return
	case err == nil:
		s.clear(key)
	case errors.Is(err, errAbsent):
		s.clear(key)
		s.changed = t.delete(id, key) || s.changed
		return
	case errors.As(err, &partial):
		s.report(key, err)
	default:
		if known {
			t.origin[id] = origin{key, s.round}
			err = fmt.Errorf("%w (what it said before stays in use)", err)
		}
		s.report(key, err)
		return
	}
	s.changed = t.put(id, origin{key, s.round}, v) || s.changed
}

// Delete removes key.
func (s *Store) Delete(key string) {
	s.clear(key)
	if rest, ok := s.ofHosts(key); ok {
		if k, err := parsePeerIP(rest); err == nil {
			s.changed = s.peerIPs.delete(k, key) || s.changed
		}
		return
	}
	k, err := s.parse(key)
	if err != nil {
		return
	}
	gone := false
	switch k.Kind {
	case KindNode:
		gone = s.nodes.delete(k.Name, key)
	case KindIPPool:
		gone = s.pools.delete(k.Name, key)
	case KindBlock:
		gone = s.blocks.delete(k.CIDR, key)
	case KindBlockAffinity:
		gone = s.affinities.delete(k.CIDR, key)
	case KindHandle:
		gone = s.handles.delete(k.Name, key)
	case KindBGPConfiguration:
		gone = s.configs.delete(k.Name, key)
	case KindBGPPeer:
		gone = s.peers.delete(k.Name, key)
	case KindBGPFilter:
		gone = s.filters.delete(k.Name, key)
	case KindWorkloadEndpoint:
		gone = s.workloads.delete(k.Namespace+"/"+k.Name, key)
	case KindLiveMigration:
		gone = s.migrations.delete(k.Namespace+"/"+k.Name, key)
	case KindFelixConfiguration:
		gone = s.felix.delete(k.Name, key)
	case KindClusterInformation:
		gone = s.notReady.delete(k.Name, key)
	}
	s.changed = s.changed || gone
}

// BeginList begins a list, after which every existing key is Put. An aborted list needs no end and
// deletes nothing.
func (s *Store) BeginList() { s.round++ }

// EndList ends a complete list of the keys under prefixes. It deletes those that were not Put since
// BeginList.
func (s *Store) EndList(prefixes ...string) {
	gone := false
	for _, prefix := range prefixes {
		for _, t := range []interface{ deleteUnseen(string, int) bool }{
			&s.nodes, &s.pools, &s.blocks, &s.affinities, &s.configs, &s.peers, &s.filters,
			&s.workloads, &s.migrations, &s.felix,
			&s.notReady, &s.peerIPs, &s.handles,
		} {
			gone = t.deleteUnseen(prefix, s.round) || gone
		}
		for key, p := range s.problems {
			if p.round != s.round && strings.HasPrefix(key, prefix) {
				s.clear(key)
			}
		}
	}
	s.changed = s.changed || gone
}

// Changed reports whether the next Snapshot differs from the last in more than Revision and Lists.
func (s *Store) Changed() bool { return s.changed }

// Snapshot returns the current data, which are as of revision. It shares unchanged parts with
// earlier snapshots.
func (s *Store) Snapshot(revision int64) *Snapshot {
	s.changed = false
	return &Snapshot{
		Revision:          revision,
		Nodes:             s.nodes.share(),
		IPPools:           s.pools.share(),
		Blocks:            s.blocks.share(),
		Affinities:        s.affinities.share(),
		BGPConfigurations: s.configs.share(),
		BGPPeers:          s.peers.share(),
		BGPFilters:        s.filters.share(),
		WorkloadEndpoints: s.workloads.share(),
		LiveMigrations:    s.migrations.share(),
		Felix:             s.felix.share(),
		PeerIPs:           s.peerIPs.share(),
		DatastoreNotReady: s.notReady.items["default"],
		Problems:          s.sortedProblems(),
	}
}

func (s *Store) report(key string, err error) {
	p := problem{err.Error(), s.round}
	if s.problems[key].text != p.text {
		s.sorted, s.changed = nil, true
	}
	s.problems[key] = p
}

func (s *Store) clear(key string) {
	if _, ok := s.problems[key]; ok {
		delete(s.problems, key)
		s.sorted, s.changed = nil, true
	}
}

func (s *Store) sortedProblems() []Problem {
	if s.sorted == nil {
		for key, p := range s.problems {
			s.sorted = append(s.sorted, Problem{Key: key, Err: p.text})
		}
		slices.SortFunc(s.sorted, func(a, b Problem) int { return cmp.Compare(a.Key, b.Key) })
	}
	return s.sorted
}
