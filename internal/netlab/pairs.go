package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Host is where packets of Pairs begin and end.
type Host struct {
	NS      *Namespace
	Address netip.Addr
}

// PairsConfig describes packets between each two of some hosts, in both directions.
type PairsConfig struct {
	Hosts    []Host
	Port     uint16        // UDP, of each host
	Interval time.Duration // between two packets from one host to another; 0: 10 ms
	Timeout  time.Duration // a packet that takes so long is lost; 0: 1 s
}

// Pairs are streams of numbered UDP packets. A host has one socket and one sender, whatever the
// number of hosts.
type Pairs struct {
	config  PairsConfig
	mark    uint64 // in each packet, so that those of an earlier run are not taken for ours
	began   time.Time
	hosts   []*pairHost
	stop    chan struct{}
	senders sync.WaitGroup
	readers sync.WaitGroup
}

// pairHost is one end.
type pairHost struct {
	conn *net.UDPConn

	mu   sync.Mutex // guards the following
	sent []time.Time
	// took has a list for each host that sends to this one, by sequence number; 0: not arrived.
	took  [][]time.Duration
	again []int // duplicates, by who sent them
}

// PairReport is what became of the packets from one host to another, by their place in the
// configuration.
type PairReport struct {
	From, To int
	Report
}

// StartPairs sends packets until Stop. One that the kernel refuses counts as sent and lost.
func StartPairs(c PairsConfig) (*Pairs, error) {
	if c.Interval <= 0 {
		c.Interval = 10 * time.Millisecond
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
	p := &Pairs{config: c, mark: rand.Uint64(), began: time.Now(),
		stop: make(chan struct{})}
	for _, h := range c.Hosts {
		host := &pairHost{
			took: make([][]time.Duration, len(c.Hosts)), again: make([]int, len(c.Hosts)),
		}
		err := h.NS.Do(func() (err error) {
			host.conn, err = net.ListenUDP("udp",
				net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.Address, c.Port)))
			return err
		})
		if err == nil {
			p.hosts = append(p.hosts, host)
			err = errors.Join(roomy(host.conn), stamped(host.conn))
		}
		if err != nil {
			p.close()
			return nil, fmt.Errorf("netlab: packets from %s: %w", h.NS.Name(), err)
		}
	}
	for i, h := range p.hosts {
		p.readers.Go(func() { p.receive(h) })
		p.senders.Go(func() { p.send(i) })
	}
	return p, nil
}

func (p *Pairs) close() {
	for _, h := range p.hosts {
		h.conn.Close()
	}
}

const pairSize = 4 * 8 // mark, sender, sequence number, time since the beginning

// send has a host send to all others at once, again and again.
func (p *Pairs) send(from int) {
	h, packet := p.hosts[from], make([]byte, pairSize)
	binary.BigEndian.PutUint64(packet, p.mark)
	binary.BigEndian.PutUint64(packet[8:], uint64(from))
	tick := time.NewTicker(p.config.Interval)
	defer tick.Stop()
	for seq := uint64(0); ; seq++ {
		now := time.Now()
		h.mu.Lock()
		h.sent = append(h.sent, now)
		h.mu.Unlock()
		binary.BigEndian.PutUint64(packet[16:], seq)
		binary.BigEndian.PutUint64(packet[24:], uint64(now.Sub(p.began)))
		for to, other := range p.config.Hosts {
			if to != from {
				// an error means that it does not arrive, which is counted
				h.conn.WriteToUDPAddrPort(packet, netip.AddrPortFrom(other.Address, p.config.Port))
			}
		}
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
	}
}

func (p *Pairs) receive(h *pairHost) {
	buf, control := make([]byte, 1500), make([]byte, 64)
	for {
		n, c, _, _, err := h.conn.ReadMsgUDPAddrPort(buf, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != pairSize || binary.BigEndian.Uint64(buf) != p.mark {
			continue
		}
		took := arrival(control[:c]).Sub(p.began) -
			time.Duration(binary.BigEndian.Uint64(buf[24:]))
		h.count(int(binary.BigEndian.Uint64(buf[8:])), int(binary.BigEndian.Uint64(buf[16:])), took)
	}
}

func (h *pairHost) count(from, seq int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if more := seq + 1 - len(h.took[from]); more > 0 {
		h.took[from] = append(h.took[from], make([]time.Duration, more)...)
	}
	if h.took[from][seq] != 0 {
		h.again[from]++
		return
	}
	h.took[from][seq] = max(took, 1)
}

// Reports are the current counts, of each host to each other.
func (p *Pairs) Reports() (all []PairReport) {
	for from, h := range p.hosts {
		h.mu.Lock()
		sent := h.sent // what it has is not changed any more
		h.mu.Unlock()
		for to, other := range p.hosts {
			if to == from {
				continue
			}
			took := make([]time.Duration, len(sent))
			other.mu.Lock()
			copy(took, other.took[from])
			again := other.again[from]
			other.mu.Unlock()
			all = append(all, PairReport{from, to, report(sent, took, again, p.config.Timeout)})
		}
	}
	return all
}

// Stop stops sending, waits for packets on their way until the time-out, and returns the final
// reports. Call it once.
func (p *Pairs) Stop() []PairReport {
	close(p.stop)
	p.senders.Wait()
	deadline := time.Now().Add(p.config.Timeout)
	onTheWay := func(r PairReport) bool { return r.Pending > 0 }
	for slices.ContainsFunc(p.Reports(), onTheWay) && time.Now().Before(deadline) {
		<-time.After(min(p.config.Timeout/20, 100*time.Millisecond))
	}
	p.close()
	p.readers.Wait()
	return p.Reports()
}
