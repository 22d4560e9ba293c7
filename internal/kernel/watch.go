package kernel

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// watch collects the kernel's events. They are hints to list again, except for two facts that a
// later list cannot show: an interface was gone, down or without an address for a moment; and which
// foreign routes clash with ours.
type watch struct {
	socket   *socket
	clashing func(entry) bool
	links    chan struct{} // of size one: interfaces or addresses changed
	routes   chan struct{} // of size one: routes that are not ours changed

	mu    sync.Mutex       // guards the following, and reading from socket
	known map[uint32]*link // by index; nil: to be taken from the next list
	// an event came during the list, which may already lack what the event removed
	rough  bool
	losses uint32 // counts those of routes, whichever interface they were over
	clash  map[clashKey]struct{}
	listed bool // clash is complete
	stale  bool // interfaces changed since they were listed
}

type clashKey struct {
	table  uint32
	prefix netip.Prefix
	metric uint32
}

func (e entry) clashKey() clashKey { return clashKey{e.table, e.prefix, e.metric} }

// link is an interface according to the events.
type link struct {
	generation uint32 // watch.losses when it lost its routes last
	down       bool
	addresses  map[netip.Addr]struct{}
}

// newWatch subscribes, in the namespace of the calling thread, to all changes but those of writer.
func newWatch(writer uint32, clashing func(entry) bool) (*watch, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	w := &watch{
		socket: s, clashing: clashing, clash: map[clashKey]struct{}{},
		links: make(chan struct{}, 1), routes: make(chan struct{}, 1),
	}
	if err := w.subscribe(writer); err != nil {
		s.Close()
		return nil, err
	}
	return w, nil
}

func (w *watch) subscribe(writer uint32) error {
	var failed error
	err := w.socket.raw.Control(func(fd uintptr) {
		if failed = ignore(int(fd), writer); failed != nil {
			return
		}
		for _, group := range []int{
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		} {
			if failed = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP,
				group); failed != nil {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// ignore filters events caused by the socket with that port, our own: a million of them would
// overrun the buffer and hide the others.
func ignore(fd int, port uint32) error {
	const portOffset = 12 // of nlmsg_pid in struct nlmsghdr
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
			K: binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port)), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

func (w *watch) Close() { w.socket.Close() }

// follow reads events until ctx ends.
func (w *watch) follow(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.socket.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		err := w.socket.raw.Read(func(fd uintptr) bool { return w.readAll(int(fd)) > 0 })
		if err != nil {
			return err
		}
	}
}

// drain reads the events received so far. An event is in our buffer before the call that caused it
// returns.
func (w *watch) drain() error {
	return w.socket.raw.Control(func(fd uintptr) { w.readAll(int(fd)) })
}

// readAll returns the number of datagrams and overruns.
func (w *watch) readAll(fd int) (events int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		n, err := recv(fd, w.socket.buf)
		switch err {
		case nil:
			for m := range messages(w.socket.buf[:n]) {
				w.note(m)
			}
		case unix.ENOBUFS, unix.EMSGSIZE:
			// events were lost: all lists are stale, the socket stays usable
			w.listed = false
			w.stale = true
			w.known = nil
			signal(w.links)
			signal(w.routes)
		default:
			return events
		}
		events++
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *watch) note(m message) {
	switch m.kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		w.noteLink(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		w.noteAddress(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		w.noteRoute(m)
	}
}

func (w *watch) noteLink(m message) {
	if len(m.body) < unix.SizeofIfInfomsg {
		return
	}
	w.stale = true
	signal(w.links)
	if family := m.body[0]; family != unix.AF_UNSPEC || w.known == nil {
		return // a message about a bridge port: RTM_DELLINK does not end an interface then
	}
	index := binary.NativeEndian.Uint32(m.body[4:])
	down := binary.NativeEndian.Uint32(m.body[8:])&unix.IFF_UP == 0
	l := w.known[index]
	switch {
	case m.kind == unix.RTM_DELLINK:
		delete(w.known, index)
		return
	case l == nil: // perhaps under the index of one that went
		l = &link{addresses: map[netip.Addr]struct{}{}}
		w.known[index] = l
		w.lose(l)
	case down && !l.down:
		w.lose(l)
	}
	l.down = down
}

// lose records that the routes over l are gone.
func (w *watch) lose(l *link) {
	w.losses++
	l.generation = w.losses
}

func (w *watch) noteAddress(m message) {
	if len(m.body) < unix.SizeofIfAddrmsg {
		return
	}
	w.stale = true
	signal(w.links)
	family, index := m.body[0], binary.NativeEndian.Uint32(m.body[4:])
	local := netip.Addr{}
	for a := range attributes(m.body[unix.SizeofIfAddrmsg:]) {
		// With both attributes IFA_LOCAL is our address and IFA_ADDRESS the peer's.
		if addr, ok := addressOf(family, a.value); ok &&
			(a.kind == unix.IFA_LOCAL || a.kind == unix.IFA_ADDRESS && !local.IsValid()) {
			local = addr
		}
	}
	l := w.known[index]
	if l == nil || !local.IsValid() {
		return
	}
	if m.kind == unix.RTM_NEWADDR {
		l.addresses[local] = struct{}{}
		return
	}
	delete(l.addresses, local)
	for other := range l.addresses {
		if other.Is4() == local.Is4() && !w.rough { // else that one may have gone, too
			return
		}
	}
	w.lose(l)
}

func (w *watch) noteRoute(m message) {
	e, ok, err := decode(m.body)
	if err != nil || !ok {
		return
	}
	if w.clashing(e) {
		key := e.clashKey()
		if m.kind == unix.RTM_NEWROUTE {
			w.clash[key] = struct{}{}
		} else {
			w.listed = false // another one with the same key may be left
		}
	}
	signal(w.routes)
}

// setGenerations sets the generations of the listed interfaces. The list becomes the base of later
// events if it is the first, or the first after lost events; a rough one only until the next.
func (w *watch) setGenerations(list []route.Interface) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil || w.rough {
		w.know(list)
	}
	for n := range list {
		if l := w.known[list[n].Index]; l != nil {
			list[n].Generation = l.generation
		}
	}
}

// know makes list the known interfaces and addresses. Any that was unknown may have lost its routes
// since the previous list.
func (w *watch) know(list []route.Interface) {
	before := w.known
	w.known = make(map[uint32]*link, len(list))
	for _, i := range list {
		l := before[i.Index]
		if l == nil {
			l = &link{}
			w.lose(l)
		}
		l.addresses = make(map[netip.Addr]struct{}, len(i.Addresses))
		for _, p := range i.Addresses {
			l.addresses[p.Addr()] = struct{}{}
		}
		w.known[i.Index] = l
	}
	w.rough = w.stale
}

func (w *watch) isStale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stale
}

func (w *watch) setStale(stale bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = stale
}
