package calicotest

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/manifest"
)

// Workload is a pod in the datastore: an allocated address and a WorkloadEndpoint.
type Workload struct {
	Name      string       `json:"name"` // "namespace/pod"
	Node      string       `json:"node"`
	Address   netip.Addr   `json:"address"`
	Block     netip.Prefix `json:"block"`     // that the address is from
	Borrowed  bool         `json:"borrowed"`  // the block is not Node's
	Interface string       `json:"interface"` // the host's end of the pod's link
}

// errFull means that a block has no free address.
var errFull = errors.New("no free address")

// Attach gives a workload ("pod" or "namespace/pod") an address and an endpoint on node. from
// selects the address: "" any enabled pool, the name of a pool, or an address, perhaps of another
// node's block. As in Calico it prefers the node's blocks, then claims a block, then borrows.
func (c *Cluster) Attach(ctx context.Context, node, name, from string) (Workload, error) {
	w, err := c.attach(ctx, node, name, func(s *calico.Snapshot, attr attribute) (netip.Addr,
		netip.Prefix, error) {
		if addr, err := netip.ParseAddr(from); err == nil {
			return c.assignAddress(ctx, s, node, addr.Unmap(), attr)
		}
		pools, err := choosePools(s, from)
		if err != nil {
			return netip.Addr{}, netip.Prefix{}, err
		}
		return c.assignFrom(ctx, s, node, pools, attr)
	})
	if err != nil {
		return w, fmt.Errorf("attach %s on %s: %w", name, node, err)
	}
	return w, nil
}

// Borrow gives the workload on node an address from a block of node owner, which claims one if
// needed.
func (c *Cluster) Borrow(ctx context.Context, node, name, owner string) (Workload, error) {
	w, err := c.attach(ctx, node, name, func(s *calico.Snapshot, attr attribute) (netip.Addr,
		netip.Prefix, error) {
		if owner == node {
			return netip.Addr{}, netip.Prefix{}, errors.New("a node borrows from another")
		}
		if _, ok := s.Nodes[owner]; !ok {
			return netip.Addr{}, netip.Prefix{}, fmt.Errorf("there is no Node(%s)", owner)
		}
		pools, err := choosePools(s, "")
		if err != nil {
			return netip.Addr{}, netip.Prefix{}, err
		}
		return c.assignFrom(ctx, s, owner, pools, attr)
	})
	if err != nil {
		return w, fmt.Errorf("borrow for %s on %s from %s: %w", name, node, owner, err)
	}
	return w, nil
}

// attach makes the workload with the address that assign allocates to attr.
func (c *Cluster) attach(ctx context.Context, node, name string,
	assign func(s *calico.Snapshot, attr attribute) (netip.Addr, netip.Prefix, error)) (Workload,
	error) {
	namespace, pod, err := splitName(name)
	if err != nil {
		return Workload{}, err
	}
	if _, found, err := c.endpoint(ctx, namespace, pod); err != nil {
		return Workload{}, err
	} else if found {
		return Workload{}, errors.New("it is there already")
	}
	s, err := c.Snapshot(ctx, node)
	if err != nil {
		return Workload{}, err
	}
	if _, ok := s.Nodes[node]; !ok {
		return Workload{}, fmt.Errorf("there is no Node(%s)", node)
	}
	container := newContainerID()
	attr := attribute{
		Handle:    "k8s-pod-network." + container,
		Secondary: map[string]string{"namespace": namespace, "node": node, "pod": pod},
	}
	addr, cidr, err := assign(s, attr)
	if err != nil {
		return Workload{}, err
	}
	e := newEndpoint(node, namespace, pod, container, addr)
	if err := c.putResource(ctx, calico.KindWorkloadEndpoint, e.meta, e.spec); err != nil {
		return Workload{}, err
	}
	return c.workload(ctx, e, cidr)
}

// Move moves the workload and its address to another node: first the allocation, then the new
// endpoint, then the deletion of the old one.
func (c *Cluster) Move(ctx context.Context, name, to string) (Workload, error) {
	w, err := c.move(ctx, name, to)
	if err != nil {
		return w, fmt.Errorf("move %s to %s: %w", name, to, err)
	}
	return w, nil
}

func (c *Cluster) move(ctx context.Context, name, to string) (Workload, error) {
	if _, pods := c.values.(kubeValues); pods {
		return Workload{}, errPodsStay
	}
	old, cidr, err := c.find(ctx, name)
	if err != nil {
		return Workload{}, err
	}
	if old.spec.Node == to {
		return Workload{}, errors.New("it is there already")
	}
	s, err := c.Snapshot(ctx, to)
	if err != nil {
		return Workload{}, err
	}
	if _, ok := s.Nodes[to]; !ok {
		return Workload{}, fmt.Errorf("there is no Node(%s)", to)
	}
	if err := c.changeBlock(ctx, cidr, func(b *block) error {
		i := b.find(old.handle())
		if i < 0 {
			return fmt.Errorf("block %s has no allocation of %s", cidr, old.handle())
		}
		b.Attributes[i].Secondary["node"] = to
		return nil
	}); err != nil {
		return Workload{}, err
	}
	e := newEndpoint(to, old.meta.Namespace, old.spec.Pod, old.spec.ContainerID, old.address())
	if err := c.putResource(ctx, calico.KindWorkloadEndpoint, e.meta, e.spec); err != nil {
		return Workload{}, err
	}
	if err := c.Delete(ctx, string(calico.KindWorkloadEndpoint),
		old.meta.Namespace+"/"+old.meta.Name); err != nil {
		return Workload{}, err
	}
	return c.workload(ctx, e, cidr)
}

// Release removes the workload's endpoint and frees its address. It returns both.
func (c *Cluster) Release(ctx context.Context, name string) (Workload, error) {
	e, cidr, err := c.find(ctx, name)
	if err != nil {
		return Workload{}, fmt.Errorf("release %s: %w", name, err)
	}
	w, err := c.workload(ctx, e, cidr)
	if err == nil {
		err = c.Delete(ctx, string(calico.KindWorkloadEndpoint), e.meta.Namespace+"/"+e.meta.Name)
	}
	if err == nil {
		err = c.freeHandle(ctx, cidr, e.handle())
	}
	if err != nil {
		return w, fmt.Errorf("release %s: %w", name, err)
	}
	return w, nil
}

func (c *Cluster) freeHandle(ctx context.Context, cidr netip.Prefix, id string) error {
	if err := c.changeBlock(ctx, cidr, func(b *block) error {
		i := b.find(id)
		if i < 0 {
			return fmt.Errorf("block %s has no allocation of %s", cidr, id)
		}
		b.free(i)
		return nil
	}); err != nil {
		return err
	}
	return c.countHandle(ctx, id, cidr, -1)
}

// endpoint is a WorkloadEndpoint of a pod.
type endpoint struct {
	meta manifest.Metadata
	spec manifest.WorkloadEndpointSpec
}

func newEndpoint(node, namespace, pod, container string, addr netip.Addr) endpoint {
	sum := sha1.Sum([]byte(namespace + "." + pod))
	return endpoint{
		meta: manifest.Metadata{
			Name:      calico.WorkloadEndpointName(node, "k8s", pod, "eth0"),
			Namespace: namespace,
			Labels: map[string]string{"projectcalico.org/namespace": namespace,
				"projectcalico.org/orchestrator": "k8s"},
		},
		spec: manifest.WorkloadEndpointSpec{
			Orchestrator: "k8s",
			Node:         node,
			ContainerID:  container,
			Pod:          pod,
			Endpoint:     "eth0",
			IPNetworks:   []string{netip.PrefixFrom(addr, addr.BitLen()).String()},
			Profiles:     []string{"kns." + namespace},
			// as Calico's CNI plugin names it
			InterfaceName: "cali" + hex.EncodeToString(sum[:])[:11],
			MAC:           "ee:ee:ee:ee:ee:ee",
		},
	}
}

func (e endpoint) handle() string { return "k8s-pod-network." + e.spec.ContainerID }

// address returns the endpoint's single address, which was written here.
func (e endpoint) address() netip.Addr { return netip.MustParsePrefix(e.spec.IPNetworks[0]).Addr() }

// workload describes e, whose address is from block cidr.
func (c *Cluster) workload(ctx context.Context, e endpoint, cidr netip.Prefix) (Workload, error) {
	var b block
	if _, err := c.read(ctx, blockKey(cidr), &b); err != nil {
		return Workload{}, err
	}
	return Workload{
		Name:      e.meta.Namespace + "/" + e.spec.Pod,
		Node:      e.spec.Node,
		Address:   e.address(),
		Block:     cidr,
		Borrowed:  b.Affinity == nil || *b.Affinity != "host:"+e.spec.Node,
		Interface: e.spec.InterfaceName,
	}, nil
}

// find returns the workload's endpoint and the block that its address is from.
func (c *Cluster) find(ctx context.Context, name string) (endpoint, netip.Prefix, error) {
	namespace, pod, err := splitName(name)
	if err != nil {
		return endpoint{}, netip.Prefix{}, err
	}
	e, found, err := c.endpoint(ctx, namespace, pod)
	if err != nil {
		return e, netip.Prefix{}, err
	}
	if !found {
		return e, netip.Prefix{}, fmt.Errorf("there is no workload %s/%s", namespace, pod)
	}
	var h handle
	if _, err := c.read(ctx, calico.Key{Kind: calico.KindHandle, Name: e.handle()},
		&h); err != nil {
		return e, netip.Prefix{}, err
	}
	for text := range h.Block {
		cidr, err := netip.ParsePrefix(text)
		if err == nil && len(e.spec.IPNetworks) == 1 && cidr.Contains(e.address()) {
			return e, cidr, nil
		}
	}
	return e, netip.Prefix{}, fmt.Errorf("workload %s/%s has no address that was allocated here",
		namespace, pod)
}

// endpoint finds a pod's WorkloadEndpoint on any node.
func (c *Cluster) endpoint(ctx context.Context, namespace,
	pod string) (e endpoint, found bool, err error) {
	all, err := c.endpoints(ctx, namespace)
	if err != nil {
		return e, false, err
	}
	for _, value := range all {
		r := struct {
			Metadata manifest.Metadata             `json:"metadata"`
			Spec     manifest.WorkloadEndpointSpec `json:"spec"`
		}{}
		if err := json.Unmarshal(value, &r); err != nil {
			return e, false, fmt.Errorf("read the workloads of %s: %w", namespace, err)
		}
		if r.Spec.Pod == pod {
			return endpoint{r.Metadata, r.Spec}, true, nil
		}
	}
	return e, false, nil
}

// splitName splits "namespace/pod"; the namespace is optional.
func splitName(name string) (namespace, pod string, err error) {
	namespace, pod, found := strings.Cut(name, "/")
	if !found {
		namespace, pod = "default", name
	}
	if namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return "", "", fmt.Errorf("%q is not the name of a workload", name)
	}
	return namespace, pod, nil
}

func newContainerID() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// choosePools returns the pool with that name, or for "" all enabled ones by name.
func choosePools(s *calico.Snapshot, name string) ([]calico.IPPool, error) {
	var pools []calico.IPPool
	for _, p := range s.IPPools {
		if p.Name == name || name == "" && !p.Disabled {
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		if name == "" {
			return nil, errors.New("there is no enabled IPPool")
		}
		return nil, fmt.Errorf("%q is neither an address nor the name of an IPPool", name)
	}
	slices.SortFunc(pools, func(a, b calico.IPPool) int { return strings.Compare(a.Name, b.Name) })
	return pools, nil
}
