package external

import (
	"net/netip"
	"strings"

	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/route"
)

func checkProxyARP(p *l3.ProxyARP) Problem {
	for _, i := range p.Interfaces {
		if i.Name == "" || !isName(i.Name) {
			return invalid("interfaces: %.80q is no name of an interface", i.Name)
		}
	}
	for _, r := range p.Ranges {
		if strings.HasPrefix(r.FirstIpAddr, "alloc:") || strings.HasPrefix(r.LastIpAddr, "alloc:") {
			return unimplemented("alloc: (model netalloc)")
		}
		first, err := netip.ParseAddr(r.FirstIpAddr)
		if err != nil || !first.Is4() {
			return invalid("first_ip_addr %.80q is no IPv4 address", r.FirstIpAddr)
		}
		last, err := netip.ParseAddr(r.LastIpAddr)
		if err != nil || !last.Is4() {
			return invalid("last_ip_addr %.80q is no IPv4 address", r.LastIpAddr)
		}
		if last.Less(first) {
			return invalid("last_ip_addr %s is before first_ip_addr %s", last, first)
		}
	}
	return Problem{}
}

// proxyARPOf are the objects of an item, but for ranges whose tables there are not.
func proxyARPOf(p *l3.ProxyARP, tables map[route.TableID]route.Table) (all []route.Object,
	missing []string) {
	seen := map[route.ObjectKey]bool{}
	add := func(o route.Object) {
		if k := o.Key(); !seen[k] {
			seen[k] = true
			all = append(all, o)
		}
	}
	for _, i := range p.Interfaces {
		add(route.ProxyARP{Interface: i.Name})
	}
	for _, r := range p.Ranges {
		out := route.ProxyARPRange{First: netip.MustParseAddr(r.FirstIpAddr),
			Last: netip.MustParseAddr(r.LastIpAddr)}
		if r.VrfId != 0 {
			id := route.TableID{ID: r.VrfId}
			t, ok := tables[id]
			if out.Table = t; !ok {
				missing = append(missing, "there is no "+id.String())
				continue
			}
		}
		add(out)
	}
	return all, missing
}
