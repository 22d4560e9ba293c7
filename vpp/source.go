package vpp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vpe"
)

// neededMessages are all that this package sends and understands. Their names with checksums are compared with VPP's
// before anything else is sent: VPP drops a message that it does not know without a word.
func neededMessages() []api.Message {
	return []api.Message{
		(*memclnt.ControlPing)(nil), (*memclnt.ControlPingReply)(nil),
		(*vpe.ShowVersion)(nil), (*vpe.ShowVersionReply)(nil),
		(*fib.FibSourceAdd)(nil), (*fib.FibSourceAddReply)(nil),
		(*fib.FibSourceDump)(nil), (*fib.FibSourceDetails)(nil),
		(*ip.IPTableDump)(nil), (*ip.IPTableDetails)(nil),
		(*ip.IPRouteAddDelV2)(nil), (*ip.IPRouteAddDelV2Reply)(nil),
		(*ip.IPRouteV2Dump)(nil), (*ip.IPRouteV2Details)(nil),
		(*ip.IPRouteLookupV2)(nil), (*ip.IPRouteLookupV2Reply)(nil),
		(*ip.IPAddressDump)(nil), (*ip.IPAddressDetails)(nil),
		(*interfaces.SwInterfaceDump)(nil), (*interfaces.SwInterfaceDetails)(nil),
		(*interfaces.SwInterfaceGetTable)(nil), (*interfaces.SwInterfaceGetTableReply)(nil),
		(*interfaces.WantInterfaceEvents)(nil), (*interfaces.WantInterfaceEventsReply)(nil),
		(*interfaces.SwInterfaceEvent)(nil),
	}
}

// refusal says why a VPP that lacks messages is not used.
func refusal(version string, missing []string, sharedWanted bool) error {
	s := fmt.Sprintf("%s lacks %s: it is older or newer than this agent's API", version, strings.Join(missing, ", "))
	if sharedWanted {
		s += ", and writing to the shared API source instead is not supported"
	}
	return errors.New(s)
}

// readVersion returns for instance "VPP 25.10-release".
func readVersion(ctx context.Context, c *conn) (string, error) {
	if _, ok := c.id((*vpe.ShowVersion)(nil)); !ok {
		return "this VPP", nil // it will be refused with all that it lacks
	}
	r, err := ask[vpe.ShowVersionReply](ctx, c, &vpe.ShowVersion{})
	if err == nil {
		err = vppError(r.Retval)
	}
	if err != nil {
		return "", fmt.Errorf("read version: %w", err)
	}
	return "VPP " + r.Version, nil
}

// source is a FIB source of VPP.
type source struct {
	id       uint8
	priority uint8
	name     string
}

// role says what entries of a source mean when a next hop is resolved.
type role uint8

const (
	wanted  role = iota // somebody wants the entry: most sources
	noRoute             // there is no route: VPP fills the gap with a drop
	derived             // made by VPP for its own use, forwards as its cover does
)

// roleOf holds the sources that are not wanted, by VPP's name for them (src/vnet/fib/fib_source.h).
var roleOf = map[string]role{
	"default-route":        noRoute,
	"recursive-resolution": derived,
	"urpf-exempt":          derived,
}

func readSources(ctx context.Context, c *conn) ([]source, error) {
	var all []source
	err := dump(ctx, c, []request{&fib.FibSourceDump{}}, func(_ int, d *fib.FibSourceDetails) {
		all = append(all, source{id: d.Src.ID, priority: d.Src.Priority, name: d.Src.Name})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// MaxSourceName is the longest name of a source, in bytes: the room in fib_source_add without a NUL, less "@" and eight digits.
const MaxSourceName = 63 - 9

// adoptOrAddSource finds our FIB source by name before adding it: VPP hands out a new id on every fib_source_add, also for a known
// name, out of one byte's worth (src/vnet/fib/fib_source.c); routes under the old id would be orphans.
//
// The name in VPP is ours with a random number behind it, made when the source is added. A source lives exactly as long as VPP
// does, so the number tells one life of VPP from another without trusting clocks, also where the process id is always 1
// and VPP's statistics segment is out of reach.
func adoptOrAddSource(ctx context.Context, c *conn, known []source, name string, priority uint8) (source, error) {
	var own *source
	for i, s := range known {
		if (s.name == name || strings.HasPrefix(s.name, name+"@")) && (own == nil || s.id < own.id) {
			own = &known[i]
		}
	}
	if own != nil {
		return *own, nil
	}
	if len(name) > MaxSourceName {
		return source{}, fmt.Errorf("FIB source name %q is longer than %d bytes", name, MaxSourceName)
	}
	s := source{priority: priority, name: name + "@" + randomHex()}
	r, err := ask[fib.FibSourceAddReply](ctx, c, &fib.FibSourceAdd{Src: fib.FibSource{Priority: priority, Name: s.name}})
	if err == nil {
		err = vppError(r.Retval)
	}
	switch {
	case err != nil:
		return source{}, fmt.Errorf("add FIB source: %w", err)
	case r.ID == 0: // FIB_SOURCE_INVALID; on the way in 0 would mean the shared API source
		return source{}, errors.New("VPP has no FIB source left: only its restart frees them")
	}
	s.id = r.ID
	return s, nil
}

func randomHex() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
