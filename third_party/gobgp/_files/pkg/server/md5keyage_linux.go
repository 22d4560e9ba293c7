// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// ageTick is how exactly Linux knows the age of a connection: one jiffy, 10 ms at most.
const ageTick = 10 * time.Millisecond

// olderThanKey reports whether a connection was there before the listener had the peer's TCP MD5
// key: nobody asked it for one. It may have waited to be accepted until now. The caller holds the
// lock.
func (fsm *fsm) olderThanKey(conn *net.TCPConn) bool {
	if fsm.pConf.Config.AuthPassword == "" {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); e != nil || err != nil {
		return true
	}
	// Where nothing was sent yet, this counts from the end of the handshake
	// (tcp_create_openreq_child).
	age := time.Duration(info.Last_data_sent) * time.Millisecond
	return age+2*ageTick > time.Since(fsm.keySince)
}
