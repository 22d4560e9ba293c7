package vpp

import (
	"maps"
	"net/netip"
	"sync"

	"vpp-route-agent/internal/route"
)

// vteps are the VXLAN tunnels of ours, by the nodes' addresses. The zero value is ready to use.
type vteps struct {
	mu      sync.Mutex
	byOuter map[netip.Addr]uint32
	byIndex map[uint32]netip.Addr
	changes int                // that this session has made
	changed map[netip.Addr]int // the last of each, as long as a listing may be from before
}

// set notes a tunnel that was made.
func (v *vteps) set(outer netip.Addr, index uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(outer)
	v.put(outer, index)
}

// remove notes that one was deleted.
func (v *vteps) remove(outer netip.Addr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(outer)
	v.drop(outer)
}

func (v *vteps) index(outer netip.Addr) (uint32, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i, ok := v.byOuter[outer]
	return i, ok
}

func (v *vteps) outer(index uint32) (netip.Addr, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, ok := v.byIndex[index]
	return a, ok
}

// some returns any tunnel of an interface.
func (v *vteps) some(name string) (outer netip.Addr, index uint32, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for outer, index := range v.byOuter {
		if route.VXLAN.Interface(outer) == name {
			return outer, index, true
		}
	}
	return outer, 0, false
}

// all returns a copy, by the nodes' addresses.
func (v *vteps) all() map[netip.Addr]uint32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.byOuter)
}

// count is what read is to be told that was there when a listing began.
func (v *vteps) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changes
}

// read takes what a listing has found, but of what was changed since it began. No later call is for
// a listing that began earlier.
func (v *vteps) read(found map[netip.Addr]uint32, began int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for outer := range v.byOuter {
		if _, there := found[outer]; !there && v.changed[outer] <= began {
			v.drop(outer)
		}
	}
	for outer, index := range found {
		if v.changed[outer] <= began {
			v.put(outer, index)
		}
	}
	maps.DeleteFunc(v.changed, func(_ netip.Addr, at int) bool { return at <= began })
}

func (v *vteps) note(outer netip.Addr) {
	if v.changed == nil {
		v.changed = map[netip.Addr]int{}
	}
	v.changes++
	v.changed[outer] = v.changes
}

func (v *vteps) put(outer netip.Addr, index uint32) {
	v.drop(outer)
	if v.byOuter == nil {
		v.byOuter, v.byIndex = map[netip.Addr]uint32{}, map[uint32]netip.Addr{}
	}
	v.byOuter[outer], v.byIndex[index] = index, outer
}

func (v *vteps) drop(outer netip.Addr) {
	if i, ok := v.byOuter[outer]; ok && v.byIndex[i] == outer {
		delete(v.byIndex, i)
	}
	delete(v.byOuter, outer)
}
