package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
)

// record is which addresses we have set, in one life of the data plane: neither VPP nor every kernel keeps with an address who set it, so
// we do. It is written before an address is set. An address that was there before us is never in it, and so never removed by us.
type record struct {
	Identity  string    `json:"identity"` // of the data plane; in another life nothing of this is there
	Addresses []setting `json:"addresses"`
}

// setting is an address on an interface. The index tells one interface of a name from the next.
type setting struct {
	Interface string       `json:"interface"`
	Index     uint32       `json:"index"`
	Address   netip.Prefix `json:"address"`
}

// on returns the addresses that we have set on an interface.
func (r record) on(name string, index uint32) (found []netip.Prefix) {
	for _, s := range r.Addresses {
		if s.Interface == name && s.Index == index {
			found = append(found, s.Address)
		}
	}
	return found
}

// elsewhere returns those that we have set on other interfaces.
func (r record) elsewhere(name string, index uint32) (found []setting) {
	for _, s := range r.Addresses {
		if s.Interface != name || s.Index != index {
			found = append(found, s)
		}
	}
	return found
}

func (r record) with(s setting) record {
	if slices.Contains(r.Addresses, s) {
		return r
	}
	r.Addresses = append(slices.Clone(r.Addresses), s)
	return r
}

func (r record) without(s setting) record {
	r.Addresses = slices.DeleteFunc(slices.Clone(r.Addresses), func(x setting) bool { return x == s })
	return r
}

// readRecord returns an empty record where there is none. One that cannot be read is an error, and empty: what it named then stays where
// it is, as if somebody else had set it.
func readRecord(path string) (record, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		return record{}, fmt.Errorf("uplink: %s: %w", path, err)
	}
	return r, nil
}

// write replaces the file in one step.
func (r record) write(path string) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	return nil
}
