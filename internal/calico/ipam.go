package calico

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unique"
)

// errAbsent is what a decoder returns for a value that says that there is nothing.
var errAbsent = errors.New("absent")

// partialError comes with a usable value, and says which part of it is missing.
type partialError string

func (e partialError) Error() string { return string(e) }

// storedBlock is a block's value (libcalico-go lib/backend/model/block.go), cut down. Its sequence numbers are not
// needed; they would not fit a float64.
type storedBlock struct {
	CIDR        string  `json:"cidr"`
	Affinity    *string `json:"affinity"`
	Allocations []*int  `json:"allocations"` // one per address; nil: free, else an index into Attributes
	Attributes  []struct {
		Handle    *string           `json:"handle_id"`
		Secondary map[string]string `json:"secondary"` // the active owner; the other end of a migration is elsewhere, and not for us
	} `json:"attributes"`
	Deleted bool `json:"deleted"`
}

// decodeBlock decodes the value under the key of the block cidr. Allocations that make no sense are left out and named by a
// partialError.
func decodeBlock(cidr netip.Prefix, value []byte) (Block, error) {
	var stored storedBlock
	if err := unmarshal(value, &stored); err != nil {
		return Block{}, err
	}
	if stored.Deleted {
		return Block{}, errAbsent
	}
	if stored.CIDR != "" {
		if said, err := parseNetwork(stored.CIDR); err != nil {
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
			wrong = append(wrong, fmt.Sprintf("allocations: %d of them are more than the block has", len(stored.Allocations)))
			break
		}
		if index != nil {
			if *index < 0 || *index >= len(stored.Attributes) {
				wrong = append(wrong, fmt.Sprintf("allocations[%d]: there are no attributes[%d], %s is left out", ordinal, *index, address))
			} else if attr := stored.Attributes[*index]; attr.Handle != nil || attr.Secondary["node"] != "" {
				a := Allocation{
					Address: address,
					Node:    unique.Make(attr.Secondary["node"]).Value(),
					Type:    unique.Make(attr.Secondary["type"]).Value(),
				}
				if attr.Handle != nil {
					a.Handle = *attr.Handle
				}
				b.Allocations = append(b.Allocations, a)
			}
		}
		address = address.Next() // invalid after the last of all addresses, which no block contains
	}
	if wrong != nil {
		return b, partialError(strings.Join(wrong, "; "))
	}
	return b, nil
}

// parseOwner reads a block's affinity. After "host:" everything is the node's name, colons included.
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

// decodeAffinity decodes a block affinity's value. A state that we do not know is kept, since it means "not confirmed", and named.
func decodeAffinity(value []byte) (AffinityState, error) {
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
	return stored.State, partialError(fmt.Sprintf("state: %q is unknown and counts as not confirmed", stored.State))
}

// storedResource is what all v3 resources share. The name is the key's.
type storedResource struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// decodeSpec decodes the spec of a resource into spec, which stays as it is where the resource has none, and returns the labels.
func decodeSpec(value []byte, spec any) (labels map[string]string, err error) {
	var stored storedResource
	if err := unmarshal(value, &stored); err != nil {
		return nil, err
	}
	if len(stored.Spec) == 0 {
		return stored.Metadata.Labels, nil
	}
	return stored.Metadata.Labels, wrapField("spec", unmarshal(stored.Spec, spec))
}

// wrapField puts the name of a field before err, which may be nil.
func wrapField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}
