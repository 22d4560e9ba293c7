package calicotest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/manifest"
)

// Apply creates or replaces the resources of calicoctl's YAML in order, and returns their names,
// such as "BGPPeer(tor-r2)". It checks all of them before the first write: unknown kinds and
// fields, and values that an agent could not use, are errors that name them.
func (c *Cluster) Apply(ctx context.Context, text []byte) (applied []string, err error) {
	resources, err := manifest.Read(text)
	if err != nil {
		return nil, err
	}
	for _, r := range resources {
		if r.Kind == calico.KindBlockAffinity {
			err = c.applyAffinity(ctx, r)
		} else {
			err = c.store(ctx, r)
		}
		if err != nil {
			return applied, fmt.Errorf("%s: %w", r, err)
		}
		applied = append(applied, r.String())
	}
	return applied, nil
}

func keyOf(r manifest.Resource) calico.Key {
	return calico.Key{Kind: r.Kind, Namespace: r.Metadata.Namespace, Name: r.Metadata.Name}
}

// putResource stores a resource built here.
func (c *Cluster) putResource(ctx context.Context, kind calico.Kind, meta manifest.Metadata,
	spec any) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	r := manifest.Resource{Kind: kind, APIVersion: manifest.APIVersion, Metadata: meta, Spec: raw}
	if err := r.Check(); err != nil {
		return err
	}
	return c.store(ctx, r)
}

// store replaces r as a whole. Like calicoctl it keeps uid and creation time.
func (c *Cluster) store(ctx context.Context, r manifest.Resource) error {
	r.Metadata.ResourceVersion = ""
	return retry(ctx, func() error {
		var old manifest.Resource
		revision, err := c.read(ctx, keyOf(r), &old)
		if err != nil {
			return err
		}
		r.Metadata.UID, r.Metadata.CreationTimestamp = old.Metadata.UID,
			old.Metadata.CreationTimestamp
		if revision == 0 {
			r.Metadata.UID, r.Metadata.CreationTimestamp = newUID(), now()
		}
		return c.write(ctx, keyOf(r), r, revision)
	})
}

// Delete deletes a resource, by "namespace/name" if the kind is namespaced. It must exist.
func (c *Cluster) Delete(ctx context.Context, kind, name string) error {
	r := manifest.Resource{Kind: calico.Kind(kind), Metadata: manifest.Metadata{Name: name}}
	if _, err := manifest.NewSpec(r.Kind); err != nil {
		return err
	}
	if r.Kind == calico.KindBlockAffinity {
		return errors.New("a BlockAffinity goes by releasing the block")
	}
	if r.Kind.Namespaced() {
		r.Metadata.Namespace, r.Metadata.Name, _ = strings.Cut(name, "/")
	}
	return retry(ctx, func() error {
		_, revision, err := c.get(ctx, keyOf(r))
		if err == nil && revision == 0 {
			err = errors.New("it does not exist")
		}
		if err == nil {
			err = c.delete(ctx, keyOf(r), revision)
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", r, err)
		}
		return nil
	})
}

// applyAffinity stores a BlockAffinity with the key and form that IPAM uses.
func (c *Cluster) applyAffinity(ctx context.Context, r manifest.Resource) error {
	key, value, err := r.Stored()
	if err != nil {
		return err
	}
	return retry(ctx, func() error {
		revision, err := c.read(ctx, key, new(manifest.Affinity))
		if err != nil {
			return err
		}
		return c.write(ctx, key, json.RawMessage(value), revision)
	})
}
