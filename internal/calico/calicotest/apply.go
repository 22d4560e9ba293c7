package calicotest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"vpp-route-agent/internal/calico"
)

const apiVersion = "projectcalico.org/v3"

// resource is any resource as it is stored.
type resource struct {
	Kind       calico.Kind     `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
	Status     json.RawMessage `json:"status,omitempty"`
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"` // never stored: it is etcd's revision
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

// newSpec returns where to decode the spec of a kind that Apply knows.
func newSpec(kind calico.Kind) (any, error) {
	switch kind {
	case calico.KindNode:
		return new(NodeSpec), nil
	case calico.KindIPPool:
		return new(IPPoolSpec), nil
	case calico.KindBGPConfiguration:
		return new(BGPConfigurationSpec), nil
	case calico.KindBGPPeer:
		return new(BGPPeerSpec), nil
	case calico.KindBGPFilter:
		return new(BGPFilterSpec), nil
	case calico.KindWorkloadEndpoint:
		return new(WorkloadEndpointSpec), nil
	case calico.KindClusterInformation:
		return new(ClusterInformationSpec), nil
	case calico.KindBlockAffinity:
		return new(blockAffinitySpec), nil
	}
	return nil, fmt.Errorf("kind %q is not one of Node, IPPool, BGPConfiguration, BGPPeer, BGPFilter, WorkloadEndpoint, BlockAffinity, ClusterInformation", kind)
}

// Apply creates or replaces the resources in calicoctl's YAML, one or several documents, in their order. It returns what was
// applied, as "BGPPeer(tor-r2)". All are read and checked before the first is written: unknown kinds and fields, and values that
// an agent could not use, are errors that name them.
func (c *Cluster) Apply(ctx context.Context, text []byte) (applied []string, err error) {
	docs := splitDocuments(text)
	if len(docs) == 0 {
		return nil, errors.New("there is no resource in it")
	}
	var resources []resource
	for i, doc := range docs {
		r, err := parseResource(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		resources = append(resources, r)
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

func (r resource) String() string {
	if r.Metadata.Namespace != "" {
		return fmt.Sprintf("%s(%s/%s)", r.Kind, r.Metadata.Namespace, r.Metadata.Name)
	}
	return fmt.Sprintf("%s(%s)", r.Kind, r.Metadata.Name)
}

func (r resource) key() calico.Key {
	return calico.Key{Kind: r.Kind, Namespace: r.Metadata.Namespace, Name: r.Metadata.Name}
}

// splitDocuments cuts YAML at its "---" lines and drops documents of blank lines and comments.
func splitDocuments(text []byte) [][]byte {
	var docs [][]byte
	var doc bytes.Buffer
	content := false
	flush := func() {
		if content {
			docs = append(docs, bytes.Clone(doc.Bytes()))
		}
		doc.Reset()
		content = false
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), " \t\r")
		if line == "---" || strings.HasPrefix(line, "--- #") {
			flush()
			continue
		}
		trimmed := strings.TrimSpace(line)
		content = content || trimmed != "" && trimmed[0] != '#'
		doc.WriteString(line + "\n")
	}
	flush()
	return docs
}

// parseResource decodes one document strictly. Its spec comes back as Calico would store it.
func parseResource(doc []byte) (resource, error) {
	var r resource
	asJSON, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return r, err
	}
	if err := strict(asJSON, &r); err != nil {
		return r, err
	}
	if r.APIVersion != apiVersion {
		return r, fmt.Errorf("apiVersion is %q, not %q", r.APIVersion, apiVersion)
	}
	spec, err := newSpec(r.Kind)
	if err != nil {
		return r, err
	}
	if r.Metadata.Name == "" || strings.Contains(r.Metadata.Name, "/") {
		return r, fmt.Errorf("%s: metadata.name %q is not a name", r.Kind, r.Metadata.Name)
	}
	if namespaced := r.Kind == calico.KindWorkloadEndpoint; namespaced != (r.Metadata.Namespace != "") {
		return r, fmt.Errorf("%s: metadata.namespace is %q", r, r.Metadata.Namespace)
	}
	if len(r.Spec) > 0 {
		if err := strict(r.Spec, spec); err != nil {
			return r, fmt.Errorf("%s: spec: %w", r, err)
		}
	}
	if r.Spec, err = json.Marshal(spec); err != nil {
		return r, fmt.Errorf("%s: %w", r, err)
	}
	return r, r.check(spec)
}

// strict decodes JSON and minds unknown and misspelled fields.
func strict(data []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append(unknown, err)...)
}

// check finds values that the agent's own decoder could not use.
func (r resource) check(spec any) error {
	node := ""
	if wep, ok := spec.(*WorkloadEndpointSpec); ok {
		node = wep.Node
	}
	if r.Kind == calico.KindBlockAffinity {
		return nil
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	store := calico.NewStore(node)
	store.Put(r.key().String(), value)
	if problems := store.Snapshot(0).Problems; len(problems) > 0 {
		return fmt.Errorf("%s: %s", r, problems[0].Err)
	}
	return nil
}

// putResource stores a resource made here.
func (c *Cluster) putResource(ctx context.Context, kind calico.Kind, meta metadata, spec any) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	r := resource{Kind: kind, APIVersion: apiVersion, Metadata: meta, Spec: raw}
	if err := r.check(spec); err != nil {
		return err
	}
	return c.store(ctx, r)
}

// store writes r whole. Like calicoctl it keeps the uid and the creation time of what it replaces.
func (c *Cluster) store(ctx context.Context, r resource) error {
	r.Metadata.ResourceVersion = ""
	return retry(ctx, func() error {
		var old resource
		revision, err := c.read(ctx, r.key(), &old)
		if err != nil {
			return err
		}
		r.Metadata.UID, r.Metadata.CreationTimestamp = old.Metadata.UID, old.Metadata.CreationTimestamp
		if revision == 0 {
			r.Metadata.UID, r.Metadata.CreationTimestamp = newUID(), now()
		}
		return c.write(ctx, r.key(), r, revision)
	})
}

// Delete deletes a resource; name is "namespace/name" for a WorkloadEndpoint. One that is not there is an error.
func (c *Cluster) Delete(ctx context.Context, kind, name string) error {
	r := resource{Kind: calico.Kind(kind), Metadata: metadata{Name: name}}
	if _, err := newSpec(r.Kind); err != nil {
		return err
	}
	if r.Kind == calico.KindBlockAffinity {
		return errors.New("a BlockAffinity goes by releasing the block")
	}
	if r.Kind == calico.KindWorkloadEndpoint {
		r.Metadata.Namespace, r.Metadata.Name, _ = strings.Cut(name, "/")
	}
	resp, err := c.client.Delete(ctx, r.key().String())
	if err != nil {
		return fmt.Errorf("delete %s: %w", r, err)
	}
	if resp.Deleted == 0 {
		return fmt.Errorf("delete %s: it does not exist", r)
	}
	return nil
}

// applyAffinity stores a BlockAffinity where and as IPAM keeps it.
func (c *Cluster) applyAffinity(ctx context.Context, r resource) error {
	var spec blockAffinitySpec
	if err := json.Unmarshal(r.Spec, &spec); err != nil {
		return err
	}
	cidr, err := netip.ParsePrefix(spec.CIDR)
	if err != nil {
		return fmt.Errorf("spec.cidr: %w", err)
	}
	owner := calico.Owner{Host: spec.Node}
	switch {
	case spec.Node == "" || strings.Contains(spec.Node, "/"):
		return fmt.Errorf("spec.node: %q is not a name", spec.Node)
	case spec.Type == "virtual":
		owner = calico.Owner{Virtual: spec.Node}
	case spec.Type != "" && spec.Type != "host":
		return fmt.Errorf("spec.type: %q is neither host nor virtual", spec.Type)
	}
	key := calico.Key{Kind: calico.KindBlockAffinity, Owner: owner, CIDR: cidr.Masked()}
	value := affinity{State: calico.AffinityState(spec.State), Deleted: spec.Deleted == "true"}
	return retry(ctx, func() error {
		revision, err := c.read(ctx, key, new(affinity))
		if err != nil {
			return err
		}
		return c.write(ctx, key, value, revision)
	})
}
