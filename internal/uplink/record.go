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

// record lists the addresses that we have set in one generation of the data plane, which keeps no
// owner of an address. It is written before an address is set. An address that existed before is
// never recorded, and so never removed.
type record struct {
	// of the data plane; the record is void in another generation
	Identity  string    `json:"identity"`
	Addresses []setting `json:"addresses"`
}

// setting is an address on an interface. The index detects an interface created anew.
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

// elsewhere returns the addresses that we have set on other interfaces.
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
	r.Addresses = slices.DeleteFunc(slices.Clone(r.Addresses), func(x setting) bool {
		return x == s
	})
	return r
}

// readRecord returns an empty record if there is no file. An unreadable one is an error and also
// empty: its addresses then count as foreign and stay.
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

// write replaces the file atomically.
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
