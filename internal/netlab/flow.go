package netlab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// FlowConfig describes a stream of ICMP echo requests.
type FlowConfig struct {
	From     netip.Addr    // source address; zero: the kernel chooses
	To       netip.Addr    // who answers: any host does
	Interval time.Duration // between requests; 0: 10 ms
	Timeout  time.Duration // a request not answered for so long is lost; 0: 1 s
}

// Flow is a running stream of numbered packets from a namespace.
type Flow struct {
	config FlowConfig
	conn   *net.IPConn
	id     uint16
	mark   uint64 // in each request, so that another flow's answers are not taken for ours
	stop   chan struct{}

	sender, receiver sync.WaitGroup

	mu        sync.Mutex // guards the following
	sent      []time.Time
	rtt       []time.Duration // by sequence number; 0: no answer yet
	duplicate int
}

// Report counts a flow's packets: Sent = Received + Lost + Pending.
type Report struct {
	Sent, Received, Lost int
	// sent within the time-out and not answered yet; 0 in the report of Stop
	Pending    int
	Duplicates int // answers to what had been answered
	Outages    []Outage
	Timeline   []Slot        // without gaps, by when packets were sent
	RTT        time.Duration // mean of those received; of Pairs it is one way
	Slowest    time.Duration // of those received
}

// Outage is a run of consecutive lost packets.
type Outage struct {
	First, Last time.Time // when the first and the last lost packet were sent
	Lost        int
}

// SlotLength is that of a Slot.
const SlotLength = 100 * time.Millisecond

// Slot counts the packets that were sent in a slot of time, and those of them that were lost.
type Slot struct {
	From       time.Time // a multiple of SlotLength
	Sent, Lost int
}

// slot returns the slot of a packet that was sent after those before.
func (r *Report) slot(at time.Time) *Slot {
	from := at.Truncate(SlotLength)
	for len(r.Timeline) == 0 || r.Timeline[len(r.Timeline)-1].From.Before(from) {
		next := from
		if n := len(r.Timeline); n > 0 {
			next = r.Timeline[n-1].From.Add(SlotLength)
		}
		r.Timeline = append(r.Timeline, Slot{From: next})
	}
	return &r.Timeline[len(r.Timeline)-1]
}

// String returns for instance "500 sent, 497 received, 3 lost".
func (r Report) String() string {
	return fmt.Sprintf("%d sent, %d received, %d lost", r.Sent, r.Received, r.Lost)
}

// StartFlow sends packets until Stop. A request that the kernel refuses for lack of a route counts
// as sent and lost.
func (n *Namespace) StartFlow(c FlowConfig) (*Flow, error) {
	if c.Interval <= 0 {
		c.Interval = 10 * time.Millisecond
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
	f := &Flow{config: c, id: uint16(rand.Uint32()), mark: rand.Uint64(), stop: make(chan struct{})}
	err := n.Do(func() (err error) {
		f.conn, err = listenEcho(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("netlab: flow from %s to %s: %w", n.Name(), c.To, err)
	}
	f.sender.Go(f.send)
	f.receiver.Go(f.receive)
	return f, nil
}

func listenEcho(c FlowConfig) (*net.IPConn, error) {
	network := "ip4:icmp"
	if c.To.Is6() {
		network = "ip6:ipv6-icmp"
	}
	var from *net.IPAddr
	if c.From.IsValid() {
		from = &net.IPAddr{IP: c.From.AsSlice()}
	}
	conn, err := net.ListenIP(network, from)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(roomy(conn), stamped(conn)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// stamped has the kernel say when each packet came in: a reader may be late on a busy machine.
func stamped(conn syscall.Conn) error {
	return withSocket(conn, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
}

// arrival is when the packet with this control message came in.
func arrival(control []byte) time.Time {
	now := time.Now()
	all, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(all) != 1 || len(all[0].Data) != 16 {
		return now
	}
	at := all[0].Data // a struct timespec
	stamp := time.Unix(int64(binary.NativeEndian.Uint64(at)),
		int64(binary.NativeEndian.Uint64(at[8:])))
	return now.Add(stamp.Sub(now)) // with a reading of the monotonic clock
}

// roomy enlarges a socket's buffer to seconds of packets: on a busy machine the reader may be late,
// and dropped packets would count as lost. Of ICMP it filters the requests of other flows.
func roomy(conn syscall.Conn) error {
	return withSocket(conn, func(fd int) error {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		icmp, ok := conn.(*net.IPConn)
		if err == nil && ok && icmp.LocalAddr().(*net.IPAddr).IP.To4() != nil {
			// ICMP_FILTER (linux/icmp.h): a bit for each blocked type
			const icmpFilter = 1
			err = unix.SetsockoptInt(fd, unix.SOL_RAW, icmpFilter, 1<<echoRequest4)
		}
		return err
	})
}

func withSocket(conn syscall.Conn, set func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = set(int(fd)) })
	return errors.Join(err, failed)
}

func (f *Flow) send() {
	to := &net.IPAddr{IP: f.config.To.AsSlice(), Zone: f.config.To.Zone()}
	tick := time.NewTicker(f.config.Interval)
	defer tick.Stop()
	for {
		f.mu.Lock()
		seq := len(f.sent)
		f.sent = append(f.sent, time.Now())
		f.rtt = append(f.rtt, 0)
		f.mu.Unlock()
		// an error means no answer, which is counted
		f.conn.WriteToIP(f.request(uint64(seq)), to)
		select {
		case <-tick.C:
		case <-f.stop:
			return
		}
	}
}

const (
	echoRequest4, echoReply4 = 8, 0     // RFC 792
	echoRequest6, echoReply6 = 128, 129 // RFC 4443 §4
	echoSize                 = 8 + 16   // header, mark, sequence number
)

func (f *Flow) request(seq uint64) []byte {
	b := make([]byte, echoSize)
	b[0] = echoRequest4
	if f.config.To.Is6() {
		b[0] = echoRequest6
	}
	binary.BigEndian.PutUint16(b[4:], f.id)
	binary.BigEndian.PutUint16(b[6:], uint16(seq))
	binary.BigEndian.PutUint64(b[8:], f.mark)
	binary.BigEndian.PutUint64(b[16:], seq)
	if b[0] == echoRequest4 { // the kernel fills in that of ICMPv6 (RFC 3542 §3.1)
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

// message is what follows the header that the kernel leaves in IPv4 packets.
func (f *Flow) message(packet []byte) []byte {
	if f.config.To.Is6() || len(packet) == 0 {
		return packet
	}
	const word = 4 // bytes, in which the header has its length (RFC 791 §3.1)
	return packet[min(word*int(packet[0]&0xf), len(packet)):]
}

// answered returns the sequence number that an ICMP message answers.
func (f *Flow) answered(b []byte) (seq uint64, ok bool) {
	want := byte(echoReply4)
	if f.config.To.Is6() {
		want = echoReply6
	}
	if len(b) < echoSize || b[0] != want || binary.BigEndian.Uint16(b[4:]) != f.id ||
		binary.BigEndian.Uint64(b[8:]) != f.mark {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[16:]), true
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func (f *Flow) receive() {
	buf, control := make([]byte, 1500), make([]byte, 64)
	for {
		n, c, _, _, err := f.conn.ReadMsgIP(buf, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// an ICMP error on the socket: the request stays unanswered
			continue
		}
		if seq, ok := f.answered(f.message(buf[:n])); ok {
			f.count(seq, arrival(control[:c]))
		}
	}
}

func (f *Flow) count(seq uint64, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case seq >= uint64(len(f.sent)):
	case f.rtt[seq] != 0:
		f.duplicate++
	default:
		f.rtt[seq] = max(at.Sub(f.sent[seq]), 1)
	}
}

// Report returns the current counts.
func (f *Flow) Report() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return report(f.sent, f.rtt, f.duplicate, f.config.Timeout)
}

// report counts packets by when each was sent and how long it took: 0 is not arrived yet.
func report(sent []time.Time, took []time.Duration, duplicates int, timeout time.Duration) Report {
	now := time.Now()
	r := Report{Sent: len(sent), Duplicates: duplicates}
	var sum time.Duration
	inOutage := false
	for seq, at := range sent {
		slot := r.slot(at)
		slot.Sent++
		switch took := took[seq]; {
		case took > 0 && took <= timeout:
			r.Received++
			sum += took
			r.Slowest = max(r.Slowest, took)
			inOutage = false
		case took == 0 && now.Sub(at) < timeout:
			r.Pending++
		default:
			r.Lost++
			slot.Lost++
			if !inOutage {
				r.Outages = append(r.Outages, Outage{First: at})
				inOutage = true
			}
			o := &r.Outages[len(r.Outages)-1]
			o.Last, o.Lost = at, o.Lost+1
		}
	}
	if r.Received > 0 {
		r.RTT = sum / time.Duration(r.Received)
	}
	return r
}

// Stop stops sending, waits for outstanding answers until the time-out, and returns the final
// report. Call it once.
func (f *Flow) Stop() Report {
	close(f.stop)
	f.sender.Wait() // it may be about to send one more
	deadline := time.Now().Add(f.config.Timeout)
	for f.Report().Pending > 0 && time.Now().Before(deadline) {
		<-time.After(min(f.config.Timeout/20, 20*time.Millisecond))
	}
	f.end()
	return f.Report()
}

func (f *Flow) end() {
	f.conn.Close()
	f.sender.Wait()
	f.receiver.Wait()
}

// Ping sends a request every 50 ms until one is answered, and returns its round-trip time. It
// returns an error when ctx ends before.
func (n *Namespace) Ping(ctx context.Context, to netip.Addr) (time.Duration, error) {
	f, err := n.StartFlow(FlowConfig{To: to, Interval: 50 * time.Millisecond, Timeout: time.Hour})
	if err != nil {
		return 0, err
	}
	defer f.end()
	defer close(f.stop)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if r := f.Report(); r.Received > 0 {
			return r.RTT, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("netlab: no answer from %s to %s: %w", to, n.Name(),
				context.Cause(ctx))
		}
	}
}
