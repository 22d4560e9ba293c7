package vpp

import (
	"context"
	"net"
	"time"

	"go.fd.io/govpp/binapi/memclnt"
)

// VPP (seen with 25.10) notices the end of a connection only if errno, when a read has returned 0 bytes, is not EAGAIN (vl_socket_read_ready in
// src/vlibmemory/socket_api.c). But read does not set errno then: it is what an earlier call has left. After VPP has once had to wait for
// room in a socket, as it has while someone writes many routes, that is EAGAIN, and the connection that ended is read again in each turn
// of VPP's main loop, for ever: half a million reads a second, a whole CPU of a VPP that otherwise sleeps. Two remedies, since a process
// that is killed cannot leave properly.

// leaveTimeout bounds the wait for a VPP that hangs.
const leaveTimeout = 500 * time.Millisecond

// leave has VPP close the connection, which does not depend on errno. What is still on its way is answered before.
func (c *conn) leave() {
	id, ok := c.id((*memclnt.SockclntDelete)(nil))
	if !ok {
		return
	}
	number := c.open(func(uint32, uint16, []byte) {}) // the reply says nothing: the end of the stream follows
	defer c.forget(number)
	buf, err := c.frame(nil, id, number<<seqBits, &memclnt.SockclntDelete{Index: c.index})
	if err != nil || c.send(buf) != nil {
		return
	}
	timeout := time.NewTimer(leaveTimeout)
	defer timeout.Stop()
	select {
	case <-c.ended:
	case <-timeout.C:
	}
}

// release ends VPP's attention to connections that ended unnoticed, those of an earlier life of ours among them. A client that reads no more
// before it says hello makes VPP's answer fail with EPIPE, and with that in errno VPP notices the ends of the others. (A connection that is
// reset would not do: VPP drops it without a system call.) It is done on each new connection to VPP and costs it a fraction of a millisecond;
// where it fails nothing is worse than before.
func release(ctx context.Context, path, name string) {
	hello, err := greeting(name)
	if err != nil {
		return
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return
	}
	defer nc.Close()
	c, ok := nc.(*net.UnixConn)
	if !ok || c.CloseRead() != nil || c.SetWriteDeadline(time.Now().Add(leaveTimeout)) != nil {
		return
	}
	_, _ = c.Write(hello)
}
