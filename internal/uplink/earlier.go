package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"vpp-route-agent/internal/route"
)

// record is what agents wrote before the FIB's journal had objects: the addresses that they have
// set in one generation of the data plane. The index detects an interface created anew.
type record struct {
	Identity  string `json:"identity"`
	Addresses []struct {
		Interface string       `json:"interface"`
		Index     uint32       `json:"index"`
		Address   netip.Prefix `json:"address"`
	} `json:"addresses"`
}

func recordOf(stateDir string) string { return filepath.Join(stateDir, "uplink.json") }

// Earlier returns a fib.Config.Earlier that reads such a record. The addresses of an unreadable one
// count as another's and stay.
func Earlier(stateDir string, log *slog.Logger) func(string, map[string]uint32) []route.Object {
	return func(identity string, interfaces map[string]uint32) (found []route.Object) {
		raw, err := os.ReadFile(recordOf(stateDir))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var r record
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err != nil {
			log.Warn("what an earlier run has set is not known and stays", "err",
				fmt.Errorf("uplink: %w", err))
			return nil
		}
		for _, a := range r.Addresses {
			index, ok := interfaces[a.Interface]
			if ok && index == a.Index && r.Identity == identity {
				found = append(found, route.Address{Interface: a.Interface, Address: a.Address})
			}
		}
		return found
	}
}
