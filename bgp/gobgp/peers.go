package gobgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

const (
	// holdTime is what we offer in OPEN, unless three keepalives take longer. RFC 4271 §10 suggests
	// 90 s; BIRD offers 240 and the lower of both counts, so it is what a dead node costs its
	// neighbours.
	holdTime = 90 * time.Second
	// connectRetry bounds a dial: GoBGP gives it up one second before. When it dials is its patch
	// "pace".
	connectRetry = 3 * time.Second
	// idleHoldAfterReset is how long a session stays down after an administrative reset; GoBGP's
	// default is 30 s.
	idleHoldAfterReset = 5 * time.Second
)

// peerConf is a peer's configuration in GoBGP, in a form that can be compared: the resource that a
// peer comes from may change without effect on the session.
type peerConf struct {
	id                 bgp.PeerID
	address, local     netip.Addr
	port               uint16
	remoteAS, localAS  uint32
	passive            bool
	password           string
	restart, keepalive time.Duration
	hold               time.Duration
	ttlSecurity        uint8
	allowLocalAS       int
	multihop           bool
	prefixLimit        uint32
	// client: GoBGP takes every iBGP peer for a client of a route reflector, because it could not
	// change that in a session that is up. Whether we reflect is for policies to say.
	client bool

	// deferral stays what it was when the peer was added; GoBGP would reset the session for another
	// one.
	deferral time.Duration
}

func confOf(p bgp.Peer, password string) peerConf {
	return peerConf{
		id: p.ID(), address: p.Address, local: p.LocalAddress, port: p.Port, remoteAS: p.RemoteAS,
		localAS: p.LocalAS, passive: p.Passive,
		password: password, restart: p.RestartTime, keepalive: p.KeepaliveTime,
		hold: max(holdTime, 3*p.KeepaliveTime), ttlSecurity: p.TTLSecurity,
		allowLocalAS: p.AllowLocalAS, multihop: p.Multihop, prefixLimit: p.PrefixLimit,
		client: !p.External(),
	}
}

// live returns c without what GoBGP's UpdatePeer changes in a session that stays up: two
// configurations that are equal then need no reset.
func (c peerConf) live() peerConf {
	c.keepalive, c.ttlSecurity, c.multihop, c.deferral, c.prefixLimit = 0, 0, false, 0, 0
	return c
}

// setPeers makes the peers equal to want, once there are policies. Only a peer that differs is
// touched.
func (s *Speaker) setPeers(ctx context.Context, want []bgp.Peer) error {
	want = slices.Clone(want)
	s.applied.wanted = want
	if s.applied.policy == nil {
		return nil // without a policy GoBGP accepts and passes on everything
	}
	wanted, problems := s.confs(want)
	errs := s.dropPeers(ctx, wanted)
	s.sessions.forgetOut(want)
	for _, p := range want {
		w, ok := wanted[p.ID()]
		if !ok {
			continue
		}
		if err := s.setPeer(ctx, w); err != nil {
			problems[p.ID()] = err.Error()
			errs = append(errs, fmt.Errorf("gobgp: peer %s: %w", p.ID(), err))
		}
	}
	s.publish(func(v *view) { v.peers, v.problems = want, problems })
	return errors.Join(errs...)
}

// confs returns how the peers are to be configured, and why some are not.
func (s *Speaker) confs(
	want []bgp.Peer,
) (wanted map[bgp.PeerID]peerConf, problems map[bgp.PeerID]string) {
	wanted, problems = make(map[bgp.PeerID]peerConf, len(want)), map[bgp.PeerID]string{}
	for _, p := range want {
		if why := s.crashes.shut(p.ID(), time.Now()); why != "" {
			problems[p.ID()] = why
			continue
		}
		password, ok, err := s.password(p)
		if err != nil {
			problems[p.ID()] = err.Error()
		}
		if ok {
			wanted[p.ID()] = confOf(p, password)
		}
	}
	return wanted, problems
}

// dropPeers removes the peers that are not wanted, or not as they are.
func (s *Speaker) dropPeers(ctx context.Context, wanted map[bgp.PeerID]peerConf) (errs []error) {
	var drop []peerConf
	for id, have := range s.applied.peers {
		if w, ok := wanted[id]; !ok || w.live() != have.live() {
			drop = append(drop, have)
		}
	}
	defer s.removing.Store(0)
	for i, have := range drop {
		s.removing.Store(int64(len(drop) - i))
		if err := s.removePeer(ctx, have); err != nil {
			errs = append(errs, fmt.Errorf("gobgp: remove peer %s: %w", have.id, err))
		}
	}
	return errs
}

// password resolves the key of p. Where it is not known, ok says whether p can be configured all
// the same: with the key of before if the peer is there already, and a missing secret may just be a
// file being replaced. Otherwise not, since without the key the session would come up unprotected,
// or the peer would refuse it.
func (s *Speaker) password(p bgp.Peer) (password string, ok bool, err error) {
	if p.Password == nil {
		return "", true, nil
	}
	known, err := s.applied.passwords, errNoPasswords
	if s.cfg.Passwords != nil {
		var pw string
		if pw, err = s.cfg.Passwords(*p.Password); err == nil && pw != "" {
			if len(pw) > maxKeyLength {
				return "", false, fmt.Errorf(
					"password %s/%s has %d bytes, a TCP MD5 key has at most %d",
					p.Password.Name, p.Password.Key, len(pw), maxKeyLength)
			}
			known[*p.Password] = pw
			return pw, true, nil
		}
	}
	password = known[*p.Password]
	_, there := s.applied.peers[p.ID()]
	return password, there && password != "", fmt.Errorf("password %s/%s is not known: %w",
		p.Password.Name, p.Password.Key, cmp.Or(err, errEmptyPassword))
}

var (
	errNoPasswords   = errors.New("this agent has no source of passwords")
	errEmptyPassword = errors.New("it is empty")
)

// setPeer adds a peer, or changes in place what can be changed so.
func (s *Speaker) setPeer(ctx context.Context, c peerConf) error {
	a := &s.applied
	have, ok := a.peers[c.id]
	c.deferral = have.deferral
	switch {
	case ok && have == c:
		return nil
	case ok:
		if _, err := a.server.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: c.api()}); err != nil {
			return err
		}
	default:
		s.sessions.add(c.id, c.remoteAS != c.localAS)
		restarting := a.restart.restartsTo(c.id)
		if restarting {
			c.deferral = a.restart.deferral
		}
		peer := c.api()
		peer.GracefulRestart.LocalRestarting = restarting
		s.identify(peer)
		if err := a.server.AddPeer(ctx, &api.AddPeerRequest{Peer: peer}); err != nil {
			s.sessions.remove(c.id)
			return err
		}
		if err := s.sessions.keyError(c.id); err != nil {
			return errors.Join(keyRefused(err), s.removePeer(ctx, c))
		}
	}
	a.peers[c.id] = c
	return nil
}

// maxKeyLength is TCP_MD5SIG_MAXKEYLEN (linux/tcp.h), in bytes.
const maxKeyLength = 80

// keyRefused says why a listener has no key for a peer. GoBGP would let the peer in without one.
func keyRefused(err error) error {
	if errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf(
			"TCP MD5 key: %w: net.core.optmem_max limits how many keys one listener can have", err)
	}
	return fmt.Errorf("TCP MD5 key: %w", err)
}

// removePeer deletes a peer with CEASE.
func (s *Speaker) removePeer(ctx context.Context, c peerConf) error {
	err := s.applied.server.DeletePeer(ctx, &api.DeletePeerRequest{Address: c.id.String()})
	if err != nil {
		return err
	}
	delete(s.applied.peers, c.id)
	s.sessions.takeOut(c.id)
	return nil
}

// retryPeers configures peers that could not be configured before. Nothing happens when all are.
func (s *Speaker) retryPeers(ctx context.Context) {
	if s.applied.speaker == nil {
		return
	}
	if err := s.setPeers(ctx, s.applied.wanted); err != nil {
		s.log.Debug("peers still not configured", "err", err)
	}
}

// api is the peer in GoBGP's words. It leaves out what would reset the session for nothing, such as
// a description.
func (c peerConf) api() *api.Peer {
	seconds := func(d time.Duration) uint64 { return uint64(d / time.Second) }
	p := &api.Peer{
		Conf: &api.PeerConf{
			// its name, from which the patched GoBGP has the address
			NeighborAddress: c.id.String(),
			PeerAsn:         c.remoteAS,
			LocalAsn:        c.localAS,
			AuthPassword:    c.password,
			AllowOwnAsn:     uint32(c.allowLocalAS),
		},
		Transport: &api.Transport{PassiveMode: c.passive, RemotePort: uint32(c.port)},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime:               seconds(c.hold),
			KeepaliveInterval:      seconds(c.keepalive),
			ConnectRetry:           seconds(connectRetry),
			IdleHoldTimeAfterReset: seconds(idleHoldAfterReset),
		}},
		GracefulRestart: &api.GracefulRestart{
			Enabled:      true,
			RestartTime:  uint32(seconds(c.restart)),
			DeferralTime: uint32(seconds(c.deferral)),
		},
		AfiSafis: []*api.AfiSafi{{
			Config: &api.AfiSafiConfig{Family: familyOf(c.address), Enabled: true},
			// Without this the capability lists no family, and no End-of-RIB is sent.
			MpGracefulRestart: &api.MpGracefulRestart{
				Config: &api.MpGracefulRestartConfig{Enabled: true},
			},
			// RFC 7911; 255: all, which is not counted
			AddPaths: &api.AddPaths{Config: &api.AddPathsConfig{Receive: true, SendMax: 255}},
		}},
	}
	if c.prefixLimit > 0 {
		p.AfiSafis[0].PrefixLimits = &api.PrefixLimit{
			Family: familyOf(c.address), MaxPrefixes: c.prefixLimit,
		}
	}
	if c.client {
		p.RouteReflector = &api.RouteReflector{RouteReflectorClient: true}
	}
	if c.local.IsValid() {
		p.Transport.LocalAddress = c.local.String()
	}
	if c.multihop {
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: 64}
	}
	if c.ttlSecurity > 0 {
		// RFC 5082 §3: a packet from n hops away arrives with a TTL of 256-n. It excludes eBGP
		// multihop in GoBGP.
		p.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: 256 - uint32(c.ttlSecurity)}
		p.EbgpMultihop = nil
	}
	return p
}
