package gobgp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// holdout is a session of GoBGP with ourselves inside this machine, from an address that GoBGP listens on to the same address. Its other
// end speaks just enough BGP to have its End-of-RIB awaited; see restart. Its family is one that carries no routes, so nothing is
// announced to it and nothing is learned, also not from another program that would come from that address first. `gobgp neighbor` shows
// it while it lasts.
type holdout struct {
	addr  netip.Addr
	conn  net.Conn
	ended chan struct{} // closed when the reader has ended
}

var (
	holdoutFamily = &api.Family{Afi: api.Family_AFI_OPAQUE, Safi: api.Family_SAFI_KEY_VALUE}
	errNoListener = errors.New("gobgp: holdout: there is no listener")
	errNotOpened  = errors.New("not the answer to OPEN")
)

const (
	holdoutRF = packet.RF_OPAQUE
	// holdoutPatience is how long the start of the speaker waits for the holdout; it takes milliseconds.
	holdoutPatience = 2 * time.Second
	// forever is longer than a restart lasts, in whole seconds of 16 bits: GoBGP shall not lose patience with the holdout itself.
	forever = 0xffff * time.Second
)

// startHoldout returns when GoBGP awaits the End-of-RIB.
func startHoldout(ctx context.Context, srv *server.BgpServer, p bgp.Plan) (*holdout, error) {
	sp := p.Speaker
	if sp.ListenPort == 0 {
		return nil, errNoListener
	}
	h := &holdout{addr: holdoutAddress(p), ended: make(chan struct{})}
	if err := srv.AddPeer(ctx, &api.AddPeerRequest{Peer: h.peer(sp)}); err != nil {
		return nil, fmt.Errorf("gobgp: holdout: %w", err)
	}
	if err := h.connect(ctx, sp); err != nil {
		return nil, errors.Join(err, srv.DeletePeer(ctx, &api.DeletePeerRequest{Address: h.addr.String()}))
	}
	go h.serve()
	return h, nil
}

// serve answers keepalives, each by one, until one end closes the connection.
func (h *holdout) serve() {
	defer close(h.ended)
	for {
		got, err := readType(h.conn)
		if err == nil && got == packet.BGP_MSG_KEEPALIVE {
			err = write(h.conn, packet.NewBGPKeepAliveMessage())
		}
		if err != nil {
			return
		}
	}
}

// holdoutAddress returns an address at which the speaker can be reached from this machine, and that is no peer's: a router on this machine
// may well be one, at 127.0.0.1.
func holdoutAddress(p bgp.Plan) netip.Addr {
	for _, a := range p.Speaker.ListenAddresses {
		if !a.IsUnspecified() {
			return a
		}
	}
	a := netip.AddrFrom4([4]byte{127, 0, 0, 2})
	for slices.ContainsFunc(p.Peers, func(peer bgp.Peer) bool { return peer.Address == a }) {
		a = a.Next()
	}
	return a
}

func (h *holdout) peer(sp bgp.Speaker) *api.Peer {
	return &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: h.addr.String(), PeerAsn: sp.AS, LocalAsn: sp.AS},
		Transport: &api.Transport{PassiveMode: true},
		// Its End-of-RIB counts only while it is restarting itself.
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: 1, DeferralTime: uint32(forever / time.Second), LocalRestarting: true},
		AfiSafis: []*api.AfiSafi{{
			Config:            &api.AfiSafiConfig{Family: holdoutFamily, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		}},
	}
}

// connect returns when GoBGP has answered our OPEN.
func (h *holdout) connect(ctx context.Context, sp bgp.Speaker) error {
	ctx, cancel := context.WithTimeout(ctx, holdoutPatience)
	defer cancel()
	if err := h.open(ctx, sp); err != nil {
		return fmt.Errorf("gobgp: holdout at %s: %w", h.addr, err)
	}
	return nil
}

func (h *holdout) open(ctx context.Context, sp bgp.Speaker) (err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: h.addr.AsSlice()}}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(h.addr.String(), strconv.Itoa(int(sp.ListenPort))))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := write(conn, holdoutOpen(sp)); err != nil {
		return err
	}
	// GoBGP sends its own OPEN, and KEEPALIVE once it has taken ours: from then on it awaits the End-of-RIB.
	for _, want := range []uint8{packet.BGP_MSG_OPEN, packet.BGP_MSG_KEEPALIVE} {
		got, err := readType(conn)
		if err != nil {
			return err
		}
		if got != want {
			return errNotOpened
		}
	}
	if err := write(conn, packet.NewBGPKeepAliveMessage()); err != nil {
		return err
	}
	h.conn = conn
	return conn.SetDeadline(time.Time{})
}

// holdoutOpen offers a hold time: without one the writes of a GoBGP that make has not built time out at once.
func holdoutOpen(sp bgp.Speaker) *packet.BGPMessage {
	id := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if id == sp.RouterID {
		id = id.Next() // an iBGP peer must have another one than we
	}
	return packet.NewBGPOpenMessage(packet.AS_TRANS, uint16(holdTime/time.Second), id.String(), []packet.OptionParameterInterface{packet.NewOptionParameterCapability([]packet.ParameterCapabilityInterface{
		packet.NewCapMultiProtocol(holdoutRF),
		packet.NewCapFourOctetASNumber(sp.AS),
		packet.NewCapGracefulRestart(false, false, 1, []*packet.CapGracefulRestartTuple{packet.NewCapGracefulRestartTuple(holdoutRF, true)}),
	})})
}

// release sends the End-of-RIB.
func (h *holdout) release() error { return write(h.conn, packet.NewEndOfRib(holdoutRF)) }

// close ends the connection and waits for the reader.
func (h *holdout) close() {
	h.conn.Close()
	<-h.ended
}

func write(w io.Writer, m *packet.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// readType reads one message and returns its type.
func readType(r io.Reader) (uint8, error) {
	var head [packet.BGP_HEADER_LENGTH]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	body := int64(binary.BigEndian.Uint16(head[16:])) - packet.BGP_HEADER_LENGTH
	_, err := io.CopyN(io.Discard, r, max(body, 0))
	return head[18], err
}
