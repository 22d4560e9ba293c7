package main

import (
	"cmp"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// rawPeer is a BGP session that sends what no GoBGP would, such as a path that went round.
type rawPeer struct {
	conn net.Conn
	as   uint32
	wg   sync.WaitGroup
	end  chan struct{}
}

var rawCommand = verbs(map[string]command{"start": rawStart, "announce": rawAnnounce})

// raw start NAME as=N [hold=SECONDS]: dials the agent from $NET.N, and opens a session without
// graceful restart.
func rawStart(sc *script, args []string) (string, error) {
	const use = "raw start NAME as=N [hold=SECONDS]"
	if len(args) < 2 {
		return "", usage(use)
	}
	from, agent, err := sc.session(args[0])
	if err != nil {
		return "", err
	}
	numbers := map[string]uint16{"as": 0, "hold": 90}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		n, err := strconv.ParseUint(value, 10, 16)
		if _, known := numbers[name]; !known || err != nil {
			return "", usage(use)
		}
		numbers[name] = uint16(n)
	}
	as := numbers["as"]
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		Timeout: 10 * time.Second}
	conn, err := dialer.Dial("tcp4", netip.AddrPortFrom(agent, bgpPort).String())
	if err != nil {
		return "", err
	}
	p := &rawPeer{conn: conn, as: uint32(as), end: make(chan struct{})}
	open := packet.NewBGPOpenMessage(as, numbers["hold"], from.String(),
		[]packet.OptionParameterInterface{packet.NewOptionParameterCapability(
			[]packet.ParameterCapabilityInterface{
				packet.NewCapMultiProtocol(packet.RF_IPv4_UC),
				packet.NewCapFourOctetASNumber(uint32(as)),
			})})
	err = cmp.Or(conn.SetReadDeadline(time.Now().Add(10*time.Second)), p.send(open))
	if err == nil { // an agent that does not expect this peer yet ends the connection
		_, err = io.ReadFull(conn, make([]byte, packet.BGP_HEADER_LENGTH))
	}
	if err = cmp.Or(err, conn.SetReadDeadline(time.Time{})); err != nil {
		conn.Close()
		return "", err
	}
	sc.raw[args[0]] = p
	p.wg.Go(func() { io.Copy(io.Discard, conn) }) // what the agent sends is no concern
	p.wg.Go(p.keepAlive)
	return "", nil
}

func (p *rawPeer) send(m *packet.BGPMessage) error {
	b, err := m.Serialize()
	if err == nil {
		_, err = p.conn.Write(b)
	}
	return err
}

func (p *rawPeer) keepAlive() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for p.send(packet.NewBGPKeepAliveMessage()) == nil {
		select {
		case <-tick.C:
		case <-p.end:
			return
		}
	}
}

func (p *rawPeer) close() {
	close(p.end)
	p.conn.Close()
	p.wg.Wait()
}

// raw announce NAME PREFIX NEXTHOP [as=N,…] [originator=ID] [cluster=ID]
func rawAnnounce(sc *script, args []string) (string, error) {
	const use = "raw announce NAME PREFIX NEXTHOP [as=N,…] [originator=ID] [cluster=ID]"
	if len(args) < 3 || sc.raw[args[0]] == nil {
		return "", usage(use)
	}
	p := sc.raw[args[0]]
	prefix, err := netip.ParsePrefix(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	path := []uint32{}
	var more []packet.PathAttributeInterface
	for _, arg := range args[3:] {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "as":
			for text := range strings.SplitSeq(value, ",") {
				n, err := strconv.ParseUint(text, 10, 32)
				if err != nil {
					return "", usage("%v", err)
				}
				path = append(path, uint32(n))
			}
		case "originator":
			more = append(more, packet.NewPathAttributeOriginatorId(value))
		case "cluster":
			more = append(more, packet.NewPathAttributeClusterList([]string{value}))
		default:
			return "", usage(use)
		}
	}
	var segments []packet.AsPathParamInterface
	if len(path) > 0 {
		segments = append(segments,
			packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, path))
	}
	attrs := []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(0),
		packet.NewPathAttributeAsPath(segments), packet.NewPathAttributeNextHop(args[2])}
	if p.as == 64512 { // the agent's own
		attrs = append(attrs, packet.NewPathAttributeLocalPref(2147482623))
	}
	return "", p.send(packet.NewBGPUpdateMessage(nil, append(attrs, more...),
		[]*packet.IPAddrPrefix{packet.NewIPAddrPrefix(uint8(prefix.Bits()),
			prefix.Addr().String())}))
}
