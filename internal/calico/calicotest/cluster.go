package calicotest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/manifest"
)

// Cluster writes the data of a Calico cluster. It is stateless: several, also in several processes,
// may write to one etcd. As in Calico each write is conditional on what was read.
type Cluster struct {
	values
	client *clientv3.Client // for raw keys; nil: the data are not in etcd
}

// NewCluster writes through client.
func NewCluster(client *clientv3.Client) *Cluster { return &Cluster{etcdValues{client}, client} }

// Snapshot reads what an agent on node would see, and all blocks.
func (c *Cluster) Snapshot(ctx context.Context, node string) (*calico.Snapshot, error) {
	return c.snapshot(ctx, node)
}

// PutRaw writes any bytes under any key, for data that Calico would never write.
func (c *Cluster) PutRaw(ctx context.Context, key, value string) error {
	_, err := c.client.Put(ctx, key, value)
	return err
}

// DeleteRaw deletes a key, or all keys under a prefix that ends in "/".
func (c *Cluster) DeleteRaw(ctx context.Context, key string) error {
	var opts []clientv3.OpOption
	if key != "" && key[len(key)-1] == '/' {
		opts = append(opts, clientv3.WithPrefix())
	}
	_, err := c.client.Delete(ctx, key, opts...)
	return err
}

// Follow calls changed at once, and after each change of a resource of a kind, until that fails or
// ctx ends.
func (c *Cluster) Follow(
	ctx context.Context, kind calico.Kind, changed func(context.Context) error,
) error {
	prefix := strings.TrimSuffix(calico.Key{Kind: kind, Name: "x"}.String(), "x")
	for resp := range c.client.Watch(ctx, prefix, clientv3.WithPrefix(),
		clientv3.WithCreatedNotify()) {
		err := resp.Err()
		if err == nil {
			err = changed(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// AddNode writes a Node with at most one address of each family, with the length of its subnet.
func (c *Cluster) AddNode(ctx context.Context, name string, addresses ...netip.Prefix) error {
	spec := manifest.NodeSpec{BGP: &manifest.NodeBGPSpec{}}
	for _, a := range addresses {
		if a.Addr().Is4() {
			spec.BGP.IPv4Address = a.String()
		} else {
			spec.BGP.IPv6Address = a.String()
		}
	}
	return c.putResource(ctx, calico.KindNode, manifest.Metadata{Name: name}, spec)
}

// AddPool writes an IPPool without encapsulation. blockSize 0 is Calico's default, 26 or 122.
func (c *Cluster) AddPool(ctx context.Context, name string, cidr netip.Prefix,
	blockSize int) error {
	spec := manifest.IPPoolSpec{CIDR: cidr.String(), IPIPMode: "Never", VXLANMode: "Never",
		BlockSize: blockSize, NodeSelector: "all()"}
	return c.putResource(ctx, calico.KindIPPool, manifest.Metadata{Name: name}, spec)
}

// errConflict means that a key was changed between our read and our write.
var errConflict = errors.New("changed by someone else meanwhile")

// read decodes the value of key into v and returns its revision; 0 where there is none.
func (c *Cluster) read(ctx context.Context, key calico.Key, v any) (revision int64, err error) {
	value, revision, err := c.get(ctx, key)
	if err == nil && value != nil {
		err = json.Unmarshal(value, v)
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	return revision, nil
}

// write puts v under key if the key still is at revision (0: does not exist), else returns
// errConflict.
func (c *Cluster) write(ctx context.Context, key calico.Key, v any, revision int64) error {
	value, err := json.Marshal(v)
	if err == nil {
		err = c.put(ctx, key, value, revision)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// remove deletes key if it still is at revision, else returns errConflict.
func (c *Cluster) remove(ctx context.Context, key calico.Key, revision int64) error {
	if err := c.delete(ctx, key, revision); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// retry repeats f while it meets conflicts. In each round one writer succeeds, so it ends.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !errors.Is(err, errConflict) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func newUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562 version 4
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// now is a timestamp as Calico writes it: RFC 3339 with whole seconds.
func now() string { return time.Now().UTC().Format(time.RFC3339) }
