package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memif"

	"vpp-route-agent/internal/route"
)

// VPP knows a memif's socket by a number, which any client may give to any path. Ours are of this
// range, by which we know them after a restart. A number is for masters or for slaves
// (src/plugins/memif/memif.c, memif_create_if): the last bit says for which.
const (
	firstSocket = 0x76720000
	lastSocket  = firstSocket | 0xffff
)

var memifNeeds = []api.Message{(*memif.MemifCreateV2)(nil), (*memif.MemifDelete)(nil),
	(*memif.MemifDump)(nil), (*memif.MemifSocketFilenameAddDelV2)(nil),
	(*memif.MemifSocketFilenameDump)(nil)}

func isOwnSocket(id uint32) bool { return firstSocket <= id && id <= lastSocket }

// isOwnMemif reports whether an interface is a memif on a socket of ours: VPP calls it
// memifSOCKET/ID.
func isOwnMemif(d *interfaces.SwInterfaceDetails) bool {
	name, ok := strings.CutPrefix(text(d.InterfaceName), "memif")
	number, _, _ := strings.Cut(name, "/")
	id, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil && isOwnSocket(uint32(id))
}

func makeMemif(ctx context.Context, l *session, want route.Link) (uint32, error) {
	m := want.Memif
	socket, err := l.memifSocket(ctx, m)
	if err != nil {
		return 0, err
	}
	req := &memif.MemifCreateV2{ID: m.ID, SocketID: socket, HwAddr: l.macFor(want),
		Role: memif.MEMIF_ROLE_API_SLAVE, Secret: string(m.Secret), RingSize: m.RingSize,
		BufferSize: m.BufferSize, RxQueues: m.RxQueues, TxQueues: m.TxQueues}
	if m.Master {
		req.Role = memif.MEMIF_ROLE_API_MASTER
	}
	r, err := ask[memif.MemifCreateV2Reply](ctx, l.conn, req)
	if err != nil {
		return 0, err
	}
	switch err = vppError(r.Retval); {
	case errors.Is(err, subInterfaceExists):
		err = declined(fmt.Sprintf("there is a memif %d at socket %s", m.ID, m.Socket))
	case errors.Is(err, systemCall4):
		err = declined(fmt.Sprintf("VPP cannot listen at %s: its directory is not there, or the "+
			"file is another's", m.Socket))
	}
	if err != nil { // VPP never listens again at a socket of which that has failed
		err = cmp.Or(l.freeMemifSockets(ctx), err)
	}
	return uint32(r.SwIfIndex), err
}

func removeMemif(ctx context.Context, l *session, d *interfaces.SwInterfaceDetails) error {
	r, err := ask[memif.MemifDeleteReply](ctx, l.conn,
		&memif.MemifDelete{SwIfIndex: d.SwIfIndex})
	if err = cmp.Or(err, vppError(r.Retval)); err != nil {
		return err
	}
	return l.freeMemifSockets(ctx)
}

// memifSocket returns the number of a socket of ours, with a new one if it has none.
func (l *session) memifSocket(ctx context.Context, m route.MemifSettings) (uint32, error) {
	first := uint32(firstSocket)
	if m.Master {
		first++
	}
	taken := map[uint32]string{}
	err := dump(ctx, l.conn, []request{&memif.MemifSocketFilenameDump{}},
		func(_ int, d *memif.MemifSocketFilenameDetails) {
			taken[d.SocketID] = text(d.SocketFilename)
		})
	if err != nil {
		return 0, err
	}
	unused := uint32(0)
	for id := first; id <= lastSocket; id += 2 {
		switch path, ok := taken[id]; {
		case path == m.Socket:
			return id, nil
		case !ok && unused == 0:
			unused = id
		}
	}
	if unused == 0 {
		return 0, declined("there are too many sockets of memifs")
	}
	r, err := ask[memif.MemifSocketFilenameAddDelV2Reply](ctx, l.conn,
		&memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: unused,
			SocketFilename: m.Socket})
	return unused, cmp.Or(err, vppError(r.Retval))
}

// freeMemifSockets gives up our numbers of sockets that no memif is at.
func (l *session) freeMemifSockets(ctx context.Context) error {
	if len(l.conn.missing(memifNeeds)) > 0 {
		return nil
	}
	var unused []uint32
	err := dump(ctx, l.conn, []request{&memif.MemifSocketFilenameDump{}},
		func(_ int, d *memif.MemifSocketFilenameDetails) {
			if isOwnSocket(d.SocketID) {
				unused = append(unused, d.SocketID)
			}
		})
	if err != nil || len(unused) == 0 {
		return err
	}
	used := map[uint32]bool{}
	err = dump(ctx, l.conn, []request{&memif.MemifDump{}},
		func(_ int, d *memif.MemifDetails) { used[d.SocketID] = true })
	for _, id := range unused {
		if err == nil && !used[id] {
			err = l.freeMemifSocket(ctx, id)
		}
	}
	return err
}

func (l *session) freeMemifSocket(ctx context.Context, id uint32) error {
	r, err := ask[memif.MemifSocketFilenameAddDelV2Reply](ctx, l.conn,
		&memif.MemifSocketFilenameAddDelV2{SocketID: id})
	return cmp.Or(err, vppError(r.Retval))
}
