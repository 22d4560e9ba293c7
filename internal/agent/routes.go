package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/netip"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// RouteStatus is one prefix that is desired or programmed: what `routes -o json` prints.
type RouteStatus struct {
	Prefix netip.Prefix `json:"prefix"`
	Table  uint32       `json:"table"`
	// Elevated: preferred to the node's own route for the prefix (a live migration).
	Elevated bool   `json:"elevated,omitempty"`
	Origin   string `json:"origin"`
	// Source is that of external configuration.
	Source string       `json:"source,omitempty"`
	Kind   string       `json:"kind"`
	Paths  []PathStatus `json:"paths"`
	State  string       `json:"state"`
	Since  time.Time    `json:"since,omitzero"`   // in this state; absent: not decided
	Reason string       `json:"reason,omitempty"` // why not all of it is programmed
	// Packets and Bytes were forwarded by the data plane's entry since it was made, whoever's it
	// is; absent without --counters, and where there is no such entry.
	Packets *uint64 `json:"packets,omitempty"`
	Bytes   *uint64 `json:"bytes,omitempty"`
}

// PathStatus is one path of a route.
type PathStatus struct {
	NextHop   string `json:"nextHop,omitempty"`
	Interface string `json:"interface,omitempty"`
	// Table is where the next hop is looked up, if not in the route's table. Without a next hop the
	// packet is.
	Table  *uint32 `json:"table,omitempty"`
	Weight uint8   `json:"weight"`
	// Encapsulation is how packets leave to NextHop, a node; absent if plain.
	Encapsulation *route.Encap `json:"encapsulation,omitempty"`
	// Packets and Bytes were sent to this next hop, for whatever prefix, as the data plane counts
	// them; absent where nobody asked, and where it does not.
	Packets *uint64 `json:"packets,omitempty"`
	Bytes   *uint64 `json:"bytes,omitempty"`
}

// listings bounds the clients of one handler that get a listing at a time, though one may never
// read it. While it is written, one of a million routes takes 40 MB, 130 MB with counters.
const listings = 4

// serveRoutes lists the routes of the FIB engine: all, or those inside ?prefix= and those that
// cover it, with what they have forwarded if ?counters=true. Queries for a single address do not
// wait for a turn.
func (a *Agent) serveRoutes(w http.ResponseWriter, r *http.Request, listing chan struct{}) {
	var within netip.Prefix
	if text := r.URL.Query().Get("prefix"); text != "" {
		p, err := ParsePrefixOrAddr(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		within = p
	}
	if !within.IsSingleIP() {
		select {
		case listing <- struct{}{}:
			defer func() { <-listing }()
		case <-r.Context().Done():
			return
		}
		// Time in the queue is not the client's. A writer that is no connection has no deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	entries := func(func(fib.Entry) bool) {} // none
	if a.cfg.FIB != nil {
		entries = a.cfg.FIB.List(within)
	}
	var counts counted
	if r.URL.Query().Get("counters") == "true" {
		var err error
		if counts, err = a.counted(r.Context(), entries); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = writeRoutes(w, entries, counts, a.externalOwner) // fails only if the client is gone
}

// writeRoutes writes what writeJSON would write for the whole list.
func writeRoutes(w io.Writer, entries iter.Seq[fib.Entry], counts counted,
	owner func(route.Key, route.Origin) string) error {
	b := bufio.NewWriterSize(w, 64<<10)
	separator, end := "[\n  ", "[]\n"
	for e := range entries {
		status := routeStatus(e)
		status.Source = owner(e.Key, e.Origin)
		counts.addTo(&status, e)
		text, err := json.MarshalIndent(status, "  ", "  ")
		if err != nil {
			return err
		}
		b.WriteString(separator)
		separator, end = ",\n  ", "\n]\n"
		if _, err := b.Write(text); err != nil {
			return err
		}
	}
	b.WriteString(end)
	return b.Flush()
}

func routeStatus(e fib.Entry) RouteStatus {
	r := RouteStatus{
		Prefix: e.Key.Prefix, Table: e.Key.Table, Elevated: e.Key.Elevated,
		Origin: e.Origin.String(), Kind: e.Kind.String(),
		Paths: pathStatuses(e.Paths, e.Key.Table),
		State: e.State.String(), Since: e.Since, Reason: reason(e),
	}
	return r
}

func pathStatuses(paths []route.Path, table uint32) []PathStatus {
	out := make([]PathStatus, len(paths)) // JSON has [] for none
	for i, p := range paths {
		out[i] = pathStatus(p, table)
	}
	return out
}

// pathStatus shows a path of a route in table.
func pathStatus(p route.Path, table uint32) PathStatus {
	s := PathStatus{Interface: p.Interface, Weight: p.Weight}
	if p.NextHop.IsValid() && !p.IsLookup() {
		s.NextHop = p.NextHop.String()
	}
	if outer, ok := route.EndpointBehind(p); ok {
		s.NextHop, s.Encapsulation = outer.String(), new(route.EncapBy(p.Interface))
	}
	if p.Interface == "" && p.Table != table {
		s.Table = &p.Table
	}
	return s
}

// reason says why a route is not programmed as desired, or not with all its paths.
func reason(e fib.Entry) string {
	switch {
	case e.Error != "":
		return e.Error
	case e.Found != "":
		return "the data plane has " + e.Found
	case e.By != "":
		return "hidden by a route of " + e.By
	}
	return e.Reason.String()
}

// ParsePrefixOrAddr takes a prefix, or an address as its /32 or /128.
func ParsePrefixOrAddr(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q has a zone: routes are of all interfaces", text)
		}
		return route.HostPrefix(a), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither a prefix nor an address", text)
	}
	norm, ok := route.Normalize(p)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4-mapped prefix shorter than /96", text)
	}
	return norm, nil
}
