package vpp

import (
	"context"
	"net"
	"time"

	"go.fd.io/govpp/binapi/memclnt"
)

// VPP (seen with 25.10) detects the end of a connection only if errno is not EAGAIN after a read of
// 0 bytes (vl_socket_read_ready in src/vlibmemory/socket_api.c). read does not set errno then. Once
// a full socket has left EAGAIN there, VPP reads the ended connection in each turn of its main
// loop, at 100 % CPU. There are two remedies, since a killed process cannot leave.

// leaveTimeout bounds the wait for a VPP that hangs.
const leaveTimeout = 500 * time.Millisecond

// leave makes VPP close the connection regardless of errno, after it has answered pending requests.
func (c *conn) leave() {
	id, ok := c.id((*memclnt.SockclntDelete)(nil))
	if !ok {
		return
	}
	// the end of the stream follows the reply
	number := c.open(func(uint32, uint16, []byte) {})
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

// release makes VPP drop connections that ended unnoticed. A client that stops reading before its
// greeting makes VPP's answer fail with EPIPE, and with that errno VPP detects the other ends. Each
// new connection does it, within a fraction of a millisecond, and may ignore its failure.
func release(ctx context.Context, cfg Config) {
	hello, err := greeting(cfg.ClientName)
	if err != nil {
		return
	}
	nc, err := cfg.Dial(ctx)
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
