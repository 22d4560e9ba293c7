// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"cmp"
	"net"
	"slices"
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// addresses are the peers by address, those of one address by the port in their name.
type addresses map[string][]*peer

func (s *BgpServer) addAddress(p *peer) {
	addr := p.fsm.pConf.Address()
	all := append(slices.Clone(s.addresses[addr]), p)
	port := func(p *peer) uint16 {
		_, port := p.fsm.pConf.Peer()
		return port
	}
	slices.SortFunc(all, func(a, b *peer) int { return cmp.Compare(port(a), port(b)) })
	s.setAddress(addr, all)
}

func (s *BgpServer) deleteAddress(p *peer) {
	addr := p.fsm.pConf.Address()
	all := slices.Clone(s.addresses[addr])
	s.setAddress(addr, slices.DeleteFunc(all, func(o *peer) bool { return o == p }))
}

// setAddress makes these the peers of an address. A listener has one TCP MD5 key for an address:
// that of the first peer there. The others need it to be given a connection.
func (s *BgpServer) setAddress(addr string, all []*peer) {
	was, now := keyOf(s.addresses[addr]), keyOf(all)
	if s.addresses[addr] = all; len(all) == 0 {
		delete(s.addresses, addr)
	}
	for _, p := range all {
		p.fsm.lock.Lock()
		p.fsm.neighbours = all
		p.fsm.lock.Unlock()
	}
	if was == now {
		return
	}
	for _, l := range s.listListeners(addr) {
		switch err := setTCPMD5SigSockopt(l, addr, now); {
		case err != nil && now != "":
			all[0].fsm.tell(KeyRefused, err)
		case err != nil:
			s.logger.Warn("failed to unset md5",
				log.Fields{"Topic": "Peer", "Key": addr, "Err": err})
		}
	}
	for _, p := range all {
		p.fsm.keySince = time.Now()
	}
}

func keyOf(all []*peer) string {
	if len(all) == 0 {
		return ""
	}
	return all[0].fsm.pConf.Config.AuthPassword
}

// dialState is the state of a peer that we dial, at an address that has other peers, too.
type dialState uint8

const (
	noConnection dialState = iota
	refusedOne             // a connection came from the address, and was refused
	unreachable            // since then a dial to the peer's port failed
)

// peerFor returns the peer that a connection from an address is for; nil if it is to be refused.
// Only the port that we dial tells the peers of one address apart. So a peer that we dial takes a
// connection from there once that failed. BIRD gives the first protocol all of them.
func (s *BgpServer) peerFor(addr string) (p *peer, found bool) {
	all := s.addresses[addr]
	switch len(all) {
	case 0:
		p, found = s.neighborMap[addr] // a dynamic one
		return p, found
	case 1:
		return all[0], true
	}
	refuse := false
	for _, o := range all {
		if o.fsm.pConf.Config.AuthPassword != keyOf(all) {
			continue
		}
		switch up, expects := o.fsm.noteRefused(); {
		case expects:
			return o, true
		case !up:
			refuse = true
		case p == nil:
			p = o // its restart, or that of another: see sessionFor
		}
	}
	if refuse {
		p = nil
	}
	return p, true
}

// noteRefused notes a connection from the peer's address. The peer expects it if it waits to be
// dialled, or cannot be reached at its port.
func (fsm *fsm) noteRefused() (up, expects bool) {
	fsm.lock.Lock()
	defer fsm.lock.Unlock()
	if fsm.state == bgp.BGP_FSM_ESTABLISHED {
		return true, false
	}
	if fsm.pConf.Transport.Config.PassiveMode || fsm.dialState == unreachable {
		return false, true
	}
	fsm.dialState = refusedOne
	return false, false
}

// dialEnded notes how a dial ended.
func (fsm *fsm) dialEnded(err error) {
	fsm.lock.Lock()
	defer fsm.lock.Unlock()
	switch {
	case err == nil:
		fsm.dialState = noConnection
	case fsm.dialState == refusedOne:
		fsm.dialState = unreachable
	}
}

// sessionFor returns the session that a candidate of fsm is for: that of the same address which is
// up with the speaker that sent the OPEN, whose restart it is, or else fsm.
func (fsm *fsm) sessionFor(c *candidate) *fsm {
	fsm.lock.RLock()
	all, localAS, key := fsm.neighbours, fsm.peerInfo.LocalAS, fsm.pConf.Config.AuthPassword
	fsm.lock.RUnlock()
	id := c.open.Body.(*bgp.BGPOpen).ID
	for _, p := range all {
		if p.fsm.upWith(id, c.as, localAS, key) {
			return p.fsm
		}
	}
	return fsm
}

func (fsm *fsm) upWith(id net.IP, as, localAS uint32, key string) bool {
	fsm.lock.RLock()
	defer fsm.lock.RUnlock()
	return fsm.state == bgp.BGP_FSM_ESTABLISHED && fsm.peerInfo.ID.Equal(id) &&
		fsm.pConf.State.PeerAs == as && fsm.peerInfo.LocalAS == localAS &&
		fsm.pConf.Config.AuthPassword == key
}
