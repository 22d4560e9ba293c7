package route

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ProxyARP wants an interface to answer ARP for the addresses of all ranges of its table.
type ProxyARP struct{ Interface string }

func (p ProxyARP) Key() ObjectKey {
	return ObjectKey{Kind: ProxyARPInterface, Interface: p.Interface}
}
func (p ProxyARP) Digest() uint64     { return digestOf("on") }
func (p ProxyARP) Needs() []ObjectKey { return []ObjectKey{LinkKey(p.Interface)} }
func (p ProxyARP) Marked() bool       { return false }

// ProxyARPRange wants IPv4 addresses to be answered for, both ends included. In table 0 the table
// has no name.
type ProxyARPRange struct {
	Table       Table
	First, Last netip.Addr
}

// ProxyARPRangeOf returns the range that k identifies, without the name of its table.
func ProxyARPRangeOf(k ObjectKey) (p ProxyARPRange, err error) {
	words := strings.Fields(k.Name)
	if k.Kind != ProxyARPAddresses || len(words) != 3 {
		return p, fmt.Errorf("%s is no range of addresses", k)
	}
	table, err := strconv.ParseUint(words[0], 10, 32)
	if err == nil {
		p.First, err = netip.ParseAddr(words[1])
	}
	if err == nil {
		p.Last, err = netip.ParseAddr(words[2])
	}
	p.Table.ID = uint32(table)
	return p, err
}

func (p ProxyARPRange) Key() ObjectKey {
	return ObjectKey{Kind: ProxyARPAddresses,
		Name: fmt.Sprintf("%d %s %s", p.Table.ID, p.First, p.Last)}
}

func (p ProxyARPRange) Digest() uint64 { return digestOf("range") }

func (p ProxyARPRange) Needs() []ObjectKey {
	if p.Table.ID == 0 {
		return nil
	}
	return []ObjectKey{p.Table.Key()}
}

func (p ProxyARPRange) Marked() bool { return false }
