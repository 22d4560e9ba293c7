// Package manifest reads Calico's resources from calicoctl's YAML and converts them to the form in
// etcd, and reads kubectl's YAML, which internal/calico/kube converts. It does no I/O:
// internal/calico decodes its results, internal/calico/calicotest stores them.
package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/yamldoc"
)

// APIVersion is the version of every resource.
const APIVersion = "projectcalico.org/v3"

// Resource is any resource, its spec as Calico stores it.
type Resource struct {
	Kind       calico.Kind     `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   Metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
	Status     json.RawMessage `json:"status,omitempty"`
}

// Metadata is the metadata of all kinds.
type Metadata struct {
	Name         string `json:"name"`
	GenerateName string `json:"generateName,omitempty"`
	Namespace    string `json:"namespace,omitempty"`
	UID          string `json:"uid,omitempty"`
	// never stored: it is etcd's revision
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	// of Kubernetes, and no meaning here
	OwnerReferences json.RawMessage `json:"ownerReferences,omitempty"`
	Finalizers      json.RawMessage `json:"finalizers,omitempty"`
	ManagedFields   json.RawMessage `json:"managedFields,omitempty"`
}

// Manifest is what a file has: Calico's resources, and objects of Kubernetes that stand for some.
type Manifest struct {
	Resources []Resource
	Objects   []kube.Object
}

// Read returns the resources of calicoctl's YAML in order, from one or several documents. It splits
// lists as printed by `calicoctl get -o yaml`. Unknown kinds and fields, and values that an agent
// could not use, are errors that name document and field.
func Read(text []byte) ([]Resource, error) {
	r := reader{skip: func(error) bool { return false }}
	err := r.read(text)
	return r.all.Resources, err
}

// ReadKnown is Read for the YAML of a newer calicoctl, or of kubectl: it skips unknown fields of
// resources, and returns a remark about each resource that has some. It takes objects of Kubernetes
// for what they are, and does not look into them.
func ReadKnown(text []byte) (all Manifest, remarks []error, err error) {
	r := reader{objects: true, skip: func(unknown error) bool {
		remarks = append(remarks, unknown)
		return true
	}}
	err = r.read(text)
	return r.all, remarks, err
}

// reader reads one file.
type reader struct {
	// skip is asked what to do with unknown fields, which the error names.
	skip    func(error) bool
	objects bool // objects of Kubernetes are read, too
	all     Manifest
}

func (r *reader) read(text []byte) error {
	docs, err := yamldoc.All(text)
	if err != nil {
		return fmt.Errorf("document %d: %w", len(docs)+1, err)
	}
	for i, doc := range docs {
		err := r.readDocument(doc, func(unknown error) bool {
			return r.skip(fmt.Errorf("document %d: %w", i+1, unknown))
		})
		if err != nil {
			return fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	if len(r.all.Resources)+len(r.all.Objects) == 0 {
		return errors.New("there is no resource in it")
	}
	return nil
}

func (r *reader) readDocument(asJSON []byte, skip func(error) bool) error {
	if !bytes.HasPrefix(asJSON, []byte("{")) {
		return errors.New("it is no resource: a mapping with apiVersion, kind, metadata " +
			"and spec is expected")
	}
	var list struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   json.RawMessage   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	// A document that is no list fails below, with an error about a resource.
	if json.Unmarshal(asJSON, &list) != nil || !strings.HasSuffix(list.Kind, "List") {
		return r.readItem(asJSON, skip)
	}
	if err := unlessSkipped(strict(asJSON, &list), skip); err != nil {
		return err
	}
	for i, item := range list.Items {
		if err := r.readItem(item, skip); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// readItem reads a resource, or an object of Kubernetes.
func (r *reader) readItem(asJSON []byte, skip func(error) bool) error {
	if r.objects {
		if o, is, err := kube.ReadObject(asJSON); err != nil {
			return err
		} else if is {
			r.all.Objects = append(r.all.Objects, o)
			return nil
		}
	}
	resource, err := readResource(asJSON, skip)
	if err == nil {
		r.all.Resources = append(r.all.Resources, resource)
	}
	return err
}

func (r Resource) String() string {
	if r.Metadata.Namespace != "" {
		return fmt.Sprintf("%s(%s/%s)", r.Kind, r.Metadata.Namespace, r.Metadata.Name)
	}
	return fmt.Sprintf("%s(%s)", r.Kind, r.Metadata.Name)
}

// Stored returns the key and value of r in etcd.
func (r Resource) Stored() (calico.Key, []byte, error) {
	if r.Kind == calico.KindBlockAffinity {
		return r.storedAffinity()
	}
	value, err := json.Marshal(r)
	return calico.Key{Kind: r.Kind, Namespace: r.Metadata.Namespace, Name: r.Metadata.Name}, value,
		err
}

// Over returns the snapshot of node that base becomes when these resources are applied.
func Over(base *calico.Snapshot, node string, resources []Resource) (*calico.Snapshot, error) {
	return put(calico.NewStoreOver(base, node), resources)
}

// Snapshot returns the snapshot of node that consists of m, see kube.Object.Put. The last of a name
// counts. Objects that cannot be used are its Problems.
func (m Manifest) Snapshot(node string, usePodCIDR bool) (*calico.Snapshot, error) {
	store := calico.NewStore(node)
	if _, err := put(store, m.Resources); err != nil { // first, as put replaces what is there
		return nil, err
	}
	for _, o := range m.Objects {
		o.Put(store, kube.Options{UsePodCIDR: usePodCIDR})
	}
	return store.Snapshot(0), nil
}

func put(store *calico.Store, resources []Resource) (*calico.Snapshot, error) {
	for _, r := range resources {
		key, value, err := r.Stored()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
		store.Replace(key.String(), value)
	}
	return store.Snapshot(0), nil
}

// readResource decodes a resource strictly. Its spec is returned as Calico would store it.
func readResource(asJSON []byte, skip func(error) bool) (Resource, error) {
	var r Resource
	if err := unlessSkipped(strict(asJSON, &r), skip); err != nil {
		return r, err
	}
	if r.APIVersion != APIVersion {
		return r, fmt.Errorf("apiVersion is %q, not %q", r.APIVersion, APIVersion)
	}
	spec, err := NewSpec(r.Kind)
	if err != nil {
		return r, err
	}
	if r.Metadata.Name == "" || strings.Contains(r.Metadata.Name, "/") {
		return r, fmt.Errorf("%s: metadata.name %q is not a name", r.Kind, r.Metadata.Name)
	}
	if r.Kind.Namespaced() != (r.Metadata.Namespace != "") {
		return r, fmt.Errorf("%s: metadata.namespace is %q", r, r.Metadata.Namespace)
	}
	if len(r.Spec) > 0 {
		if err := strict(r.Spec, spec); err != nil {
			sep := ": "
			if errors.As(err, new(errWrongType)) {
				sep = "."
			}
			err = unlessSkipped(fmt.Errorf("%s: spec%s%w", r, sep, err), skip)
			if err != nil {
				return r, err
			}
		}
	}
	if err := unlessSkipped(zeros(r), skip); err != nil {
		return r, err
	}
	if r.Spec, err = json.Marshal(spec); err != nil {
		return r, fmt.Errorf("%s: %w", r, err)
	}
	return r, r.Check()
}

// zeros names a number of a BGPConfiguration that reads as one and counts as none.
func zeros(r Resource) error {
	var given struct{ ASNumber, ListenPort json.RawMessage }
	if r.Kind != calico.KindBGPConfiguration || len(r.Spec) == 0 ||
		json.Unmarshal(r.Spec, &given) != nil {
		return nil
	}
	field := ""
	switch {
	case string(given.ASNumber) == "0":
		field = "asNumber"
	case string(given.ListenPort) == "0":
		field = "listenPort"
	default:
		return nil
	}
	return errUnknown{fmt.Errorf("%s: spec.%s: 0 is as if it were not given", r, field)}
}

// strict decodes JSON and rejects unknown or misspelled fields. A scalar becomes text if into has a
// string, as in calicoctl: a label of yes is "true". sigs.k8s.io/yaml converts it, and
// encoding/json, which is less strict, decodes the result.
func strict(data []byte, into any) error {
	var typed json.RawMessage
	var decoding error
	err := yaml.Unmarshal(data, into, func(d *json.Decoder) *json.Decoder {
		decoding = d.Decode(&typed)
		return json.NewDecoder(strings.NewReader("null"))
	})
	if err := cmp.Or(err, decoding); err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(typed, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return errWrongType{wrong.Field, wrong.Value, wrong.Type}
	}
	if err != nil || len(unknown) == 0 {
		return err
	}
	return errUnknown{errors.Join(unknown...)}
}

// errWrongType is about a field with a value of another type.
type errWrongType struct {
	field, value string // value: a kind of JSON's, or a number behind the word number
	want         reflect.Type
}

func (e errWrongType) Error() string {
	want := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.String: "text", reflect.Slice: "a list",
		reflect.Uint8: "a whole number from 0 to 255", reflect.Int: "a whole number",
		reflect.Uint16: "a whole number from 0 to 65535",
	}[e.want.Kind()]
	value, isNumber := strings.CutPrefix(e.value, "number ")
	if !isNumber {
		value = map[string]string{"bool": "a truth value", "string": "text", "array": "a list",
			"object": "a mapping", "number": "a number"}[e.value]
	}
	return fmt.Sprintf("%s: %s is not %s", e.field, value, cmp.Or(want, "a mapping"))
}

// unlessSkipped returns err, or nil if it is only about unknown fields that skip wants skipped.
func unlessSkipped(err error, skip func(error) bool) error {
	if errors.As(err, &errUnknown{}) && skip(err) {
		return nil
	}
	return err
}

// errUnknown names fields that are unknown, given twice, or without effect. The others are decoded.
type errUnknown struct{ error }

// Check rejects values that the agent's decoder could not use.
func (r Resource) Check() error {
	key, value, err := r.Stored()
	if err != nil {
		return fmt.Errorf("%s: %w", r, err)
	}
	store := calico.NewStore(r.node(key))
	store.Put(key.String(), value)
	if problems := store.Snapshot(0).Problems; len(problems) > 0 {
		return fmt.Errorf("%s: %s", r, problems[0].Err)
	}
	return nil
}

// node returns the node whose agent reads r. Of some kinds each agent reads only its own.
func (r Resource) node(key calico.Key) string {
	var spec struct {
		Node string `json:"node"`
	}
	switch r.Kind {
	case calico.KindBlockAffinity:
		return key.Owner.Host
	case calico.KindWorkloadEndpoint:
		_ = json.Unmarshal(r.Spec, &spec) // it was written by us
	case calico.KindFelixConfiguration:
		return strings.TrimPrefix(r.Metadata.Name, "node.")
	}
	return spec.Node
}
