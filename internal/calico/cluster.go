package calico

import (
	"net/netip"
	"slices"
)

// Cluster is Calico's data of all nodes, for one look at the whole.
type Cluster struct {
	// Snapshot has what no node has for itself: Nodes, pools, BGP's resources and all blocks.
	// Problems are those of everything.
	Snapshot   *Snapshot
	Affinities []Affinity
	Endpoints  []WorkloadEndpoint
	Migrations []LiveMigration
}

// Affinity is one of any node, or of a virtual owner.
type Affinity struct {
	Owner Owner
	CIDR  netip.Prefix
	State AffinityState
}

// ClusterReader makes a Cluster of the items of a source. The zero value is not usable.
type ClusterReader struct {
	store *Store // of no node
	all   Cluster
	bad   []Problem
}

// NewClusterReader returns an empty one.
func NewClusterReader() *ClusterReader { return &ClusterReader{store: NewStore("")} }

// ClusterPrefixes begin the keys of etcd that a Cluster is made of.
func ClusterPrefixes() []string {
	of := func(k Kind) string { return resourcePath + k.plural() + "/" }
	return []string{of(KindClusterInformation), of(KindNode), of(KindIPPool),
		of(KindBGPConfiguration), of(KindBGPPeer), of(KindBGPFilter), blockPath, hostPath,
		virtualPath, of(KindWorkloadEndpoint), of(KindLiveMigration)}
}

// PutKey takes a key of etcd.
func (r *ClusterReader) PutKey(key string, value []byte) {
	k, err := ParseKey(key)
	switch {
	case err != nil:
		r.Put(key, Item{Err: err})
	case kinds[k.Kind] != nil:
		r.Put(key, Decode(k, value))
	}
}

// Put takes an item and its place.
func (r *ClusterReader) Put(place string, i Item) {
	if i.Err != nil && (i.Key == Key{} || r.isKept(i.Key.Kind)) {
		name := i.Name
		if name == "" {
			name = i.Key.Resource()
		}
		r.bad = append(r.bad, Problem{Resource: name, Key: place, Err: i.Err.Error()})
	}
	switch v := i.Value.(type) {
	case AffinityState:
		r.all.Affinities = append(r.all.Affinities, Affinity{i.Key.Owner, i.Key.CIDR, v})
	case WorkloadEndpoint:
		r.all.Endpoints = append(r.all.Endpoints, v)
	case LiveMigration:
		r.all.Migrations = append(r.all.Migrations, v)
	default:
		if i.Key != (Key{}) && !r.isKept(i.Key.Kind) {
			r.store.Set(place, i)
		}
	}
}

// isKept reports whether items of a kind are kept here, since those of all nodes are wanted.
func (*ClusterReader) isKept(k Kind) bool {
	return k == KindBlockAffinity || k == KindWorkloadEndpoint || k == KindLiveMigration
}

// Cluster returns what was put, as of a revision.
func (r *ClusterReader) Cluster(revision int64) *Cluster {
	out := r.all
	out.Snapshot = r.store.Snapshot(revision)
	out.Snapshot.Problems = append(slices.Clip(out.Snapshot.Problems), r.bad...)
	return &out
}
