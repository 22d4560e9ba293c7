package calico

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unique"
)

// errAbsent is a decoder's result for a value that stands for nothing.
var errAbsent = errors.New("absent")

// partialError accompanies a usable value and names the part that was left out.
type partialError string

func (e partialError) Error() string { return string(e) }

// storedBlock is the part we use of a block's value (libcalico-go lib/backend/model/block.go). We
// skip its sequence numbers, which do not fit a float64.
type storedBlock struct {
	CIDR     string  `json:"cidr"`
	Affinity *string `json:"affinity"`
	// one per address; nil: free, else an index into Attributes
	Allocations []*int `json:"allocations"`
	Attributes  []struct {
		Handle *string `json:"handle_id"`
		// the active owner; a migration's other end is on another node
		Secondary map[string]string `json:"secondary"`
	} `json:"attributes"`
	Deleted bool `json:"deleted"`
}

// decodeBlock decodes a block. It skips invalid allocations and reports them in a
// partialError.
func decodeBlock(k Key, value []byte) (Block, error) {
	var stored storedBlock
	if err := unmarshal(value, &stored); err != nil {
		return Block{}, err
	}
	return stored.block(k.CIDR)
}

// DecodeBlockObject decodes a block that is the spec of an object, and says itself which it is.
func DecodeBlockObject(value []byte) Item {
	var o struct {
		Spec *storedBlock `json:"spec"`
	}
	if err := unmarshal(value, &o); err != nil {
		return Item{Err: err}
	}
	if o.Spec == nil {
		return Item{Err: errors.New("spec: it is missing")}
	}
	cidr, err := ParseBlock(o.Spec.CIDR)
	if err != nil {
		return Item{Err: fmt.Errorf("spec.cidr: %w", err)}
	}
	b, err := o.Spec.block(cidr)
	item := decoded(Key{Kind: KindBlock, CIDR: cidr}, b, err)
	if item.Err != nil {
		item.Err = fmt.Errorf("spec.%w", item.Err)
	}
	return item
}

func (stored *storedBlock) block(cidr netip.Prefix) (Block, error) {
	if stored.Deleted {
		return Block{}, errAbsent
	}
	if stored.CIDR != "" {
		if said, err := ParseNetwork(stored.CIDR); err != nil {
			return Block{}, fmt.Errorf("cidr: %w", err)
		} else if said != cidr {
			return Block{}, fmt.Errorf("cidr: %s is not the block of the key", stored.CIDR)
		}
	}
	owner, err := parseOwner(stored.Affinity)
	if err != nil {
		return Block{}, fmt.Errorf("affinity: %w", err)
	}
	b := Block{CIDR: cidr, Owner: owner}
	var wrong []string
	address := cidr.Addr()
	for ordinal, index := range stored.Allocations {
		if !cidr.Contains(address) {
			wrong = append(wrong, fmt.Sprintf("allocations: %d of them are more than the block has",
				len(stored.Allocations)))
			break
		}
		if index != nil {
			if *index < 0 || *index >= len(stored.Attributes) {
				wrong = append(wrong,
					fmt.Sprintf("allocations[%d]: there are no attributes[%d], %s is left out",
						ordinal, *index, address))
			} else if attr := stored.Attributes[*index]; attr.Handle != nil ||
				attr.Secondary["node"] != "" {
				b.Allocations = append(b.Allocations, Allocation{
					Address: address,
					Node:    unique.Make(attr.Secondary["node"]).Value(),
					Type:    unique.Make(attr.Secondary["type"]).Value(),
				})
			}
		}
		address = address.Next() // invalid after the last of all addresses, which no block contains
	}
	if wrong != nil {
		return b, partialError(strings.Join(wrong, "; "))
	}
	return b, nil
}

// parseOwner parses a block's affinity. Everything after "host:" is the node's name, even colons.
func parseOwner(affinity *string) (Owner, error) {
	if affinity == nil || *affinity == "" {
		return Owner{}, nil
	}
	if host, ok := strings.CutPrefix(*affinity, "host:"); ok && host != "" {
		return Owner{Host: unique.Make(host).Value()}, nil
	}
	if name, ok := strings.CutPrefix(*affinity, "virtual:"); ok && name != "" {
		return Owner{Virtual: unique.Make(name).Value()}, nil
	}
	return Owner{}, fmt.Errorf("%q is neither host:NODE nor virtual:NAME", *affinity)
}

// decodeAffinity decodes a block affinity. It keeps an unknown state, which is not "confirmed", and
// reports it.
func decodeAffinity(_ Key, value []byte) (AffinityState, error) {
	if len(value) == 0 {
		return AffinityConfirmed, nil
	}
	var stored struct {
		State   AffinityState `json:"state"`
		Deleted bool          `json:"deleted"`
	}
	if err := unmarshal(value, &stored); err != nil {
		return "", err
	}
	if stored.Deleted {
		return "", errAbsent
	}
	switch stored.State {
	case "":
		return AffinityConfirmed, nil
	case AffinityPending, AffinityConfirmed, AffinityPendingDeletion:
		return stored.State, nil
	}
	return stored.State, partialError(
		fmt.Sprintf("state: %q is unknown and counts as not confirmed", stored.State))
}

// storedResource is common to all v3 resources. The name comes from the key.
type storedResource struct {
	Kind     Kind `json:"kind"`
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// decodeSpec decodes a resource's spec into spec, unchanged if there is none, and returns the
// labels.
func decodeSpec(k Key, value []byte, spec any) (labels map[string]string, err error) {
	var stored storedResource
	if err := unmarshal(value, &stored); err != nil {
		return nil, err
	}
	if stored.Kind != "" && stored.Kind != k.Kind {
		return nil, fmt.Errorf("kind: %q under a key of %s", stored.Kind, k.Kind)
	}
	if len(stored.Spec) == 0 {
		return stored.Metadata.Labels, nil
	}
	return stored.Metadata.Labels, wrapField("spec", unmarshal(stored.Spec, spec))
}
