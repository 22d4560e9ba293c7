package recorder

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Record is one thing that was recorded.
type Record struct {
	At     time.Time // by the clock of the host as it was when the record was written
	Moment fib.Moment
	// What is a Dropped, *fib.CandidateChange, *Decision, *Batch, *fib.BatchResult, *FactsChange,
	// *Resolved, *Forgotten, *SurroundingsChange, *calico.RecordedChanges, *PlanInputs,
	// *Planned, Settled, WantedStands, DecidedStands or Complete.
	What any
	// State: it was so when the segment began, and had happened before.
	State bool
}

// WantedStands and DecidedStands are of a checkpoint, which Complete ends, if it is of the segment
// that it is in.
type (
	WantedStands  struct{ *fib.CandidateChange }
	DecidedStands struct{ *Decision }
	Complete      struct{ Segment, Keys uint64 }
)

// Dropped are so many records, for which there was no room, or which the disk did not take.
type Dropped uint64

// Decision is a fib.Decision with the reason as text.
type Decision struct {
	fib.Decision
	Reason string
}

// Batch is a fib.Batch as it is read.
type Batch struct {
	Number uint64
	Ops    []fib.BatchOp
}

// Settled: all was decided.
type Settled struct{}

// Forgotten is a next hop about which nothing counts any more that the data plane has said.
type Forgotten struct{ fib.NextHop }

// Resolved is how the data plane forwards to a next hop.
type Resolved struct {
	fib.NextHop
	route.Resolution
}

var errRecord = errors.New("a record makes no sense")

// decoder reads what an encoder wrote. After the first error everything is zero.
type decoder struct {
	b    []byte
	last fib.Moment
	bad  bool

	wanted, decided []route.Path // as in encoder
}

// records calls f for each record of a block.
func records(body []byte, isState bool, f func(Record) error) error {
	if len(body) < 8 {
		return errRecord
	}
	wall := int64(binary.BigEndian.Uint64(body))
	d := decoder{b: body[8:]}
	for len(d.b) > 0 {
		kind := recordKind(d.byte())
		at := d.moment()
		r := Record{At: time.Unix(0, wall+int64(at)), Moment: at, What: d.what(kind, at),
			State: isState}
		if d.bad || r.What == nil {
			return errRecord
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) what(kind recordKind, at fib.Moment) any {
	switch kind {
	case kindDropped:
		return Dropped(d.uint())
	case kindCandidate:
		return d.candidate(at)
	case kindDecided:
		return d.decision(at)
	case kindSent:
		return d.batch()
	case kindAnswered:
		return d.result(at)
	case kindFacts:
		return fromJSON(d, &FactsChange{})
	case kindResolved:
		return fromJSON(d, &Resolved{})
	case kindSurroundings:
		return fromJSON(d, &SurroundingsChange{})
	case kindWantedStands:
		return WantedStands{d.candidate(at)}
	case kindDecidedStands:
		return DecidedStands{d.decision(at)}
	case kindComplete:
		return Complete{d.uint(), d.uint()}
	case kindForgotten:
		return fromJSON(d, &Forgotten{})
	case kindSettled:
		return Settled{}
	case kindPlanInputs:
		return fromJSON(d, &PlanInputs{})
	case kindPlanned:
		return fromJSON(d, &Planned{})
	case kindDatastore:
		return fromJSON(d, &calico.RecordedChanges{})
	}
	return nil
}

func (d *decoder) candidate(at fib.Moment) *fib.CandidateChange {
	c := &fib.CandidateChange{At: at, Received: d.moment(), Key: d.key(),
		Origin: d.origin(), Kind: d.kind(), Preference: uint32(d.uint())}
	c.Paths = d.paths(&d.wanted)
	return c
}

func (d *decoder) decision(at fib.Moment) *Decision {
	out := &Decision{Decision: fib.Decision{At: at, Received: d.moment(), Key: d.key()}}
	flags := d.byte()
	out.Programs, out.Waiting = flags&isProgrammed != 0, flags&isWaiting != 0
	out.Held = flags&isHeld != 0
	out.Origin, out.Reason = d.origin(), d.text()
	if out.Programs {
		out.Kind = d.kind()
		out.Paths = d.paths(&d.decided)
		out.Digest = route.Route{Kind: out.Kind, Paths: out.Paths}.Digest()
	}
	return out
}

func (d *decoder) batch() *Batch {
	b, digest := &Batch{Number: d.uint()}, uint64(0)
	for !d.bad {
		flags := d.byte()
		if flags&opPresent == 0 {
			break
		}
		op := d.op(flags, digest)
		b.Ops, digest = append(b.Ops, op), op.Digest
	}
	return b
}

func (d *decoder) op(flags byte, digest uint64) (op fib.BatchOp) {
	if flags&opIsObject != 0 {
		op.Object = &route.ObjectKey{Kind: route.ObjectKind(d.byte()), Interface: d.text(),
			Name: d.text()}
	} else {
		op.Key = d.key()
	}
	switch {
	case flags&opSameDigest != 0:
		op.Digest = digest
	case flags&opDeletes == 0:
		op.Digest = d.digest()
	}
	if op.Queued = d.last; flags&opSameTime == 0 {
		op.Queued = d.moment()
	}
	return op
}

func (d *decoder) result(at fib.Moment) *fib.BatchResult {
	r := &fib.BatchResult{At: at, Number: d.uint()}
	for n := d.uint(); n > 0 && !d.bad; n-- {
		r.Failed = append(r.Failed, fib.FailedOp{Index: int(d.uint()), Error: d.text()})
	}
	return r
}

func fromJSON[T any](d *decoder, v *T) any {
	if text := d.text(); d.bad || json.Unmarshal([]byte(text), v) != nil {
		return nil
	}
	return v
}

func (d *decoder) cut(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.b, d.bad = nil, true
		return make([]byte, 16)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte     { return d.cut(1)[0] }
func (d *decoder) digest() uint64 { return binary.BigEndian.Uint64(d.cut(8)) }

func (d *decoder) origin() route.Origin { return route.Origin(d.most(byte(route.Overlay))) }
func (d *decoder) kind() route.Kind     { return route.Kind(d.most(byte(route.Prohibit))) }

// most is a byte that others count by.
func (d *decoder) most(last byte) byte {
	b := d.byte()
	if b > last {
		d.b, d.bad = nil, true
		return 0
	}
	return b
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) moment() fib.Moment {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[size:]
	if n == 0 {
		return 0
	}
	if n > 0 {
		n--
	}
	d.last += fib.Moment(n)
	return d.last
}

func (d *decoder) text() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return ""
	}
	return string(d.cut(int(n)))
}

func (d *decoder) address(is6 bool) netip.Addr {
	if is6 {
		return netip.AddrFrom16([16]byte(d.cut(16)))
	}
	return netip.AddrFrom4([4]byte(d.cut(4)[:4]))
}

func (d *decoder) key() (k route.Key) {
	flags, bits := d.byte(), d.byte()
	p := netip.PrefixFrom(d.address(flags&keyIPv6 != 0), int(bits))
	if k.Prefix = p; !p.IsValid() || p != p.Masked() {
		d.b, d.bad = nil, true
		return route.Key{}
	}
	k.Elevated = flags&keyElevated != 0
	if flags&keyInTable != 0 {
		k.Table = uint32(d.uint())
	}
	return k
}

func (d *decoder) paths(before *[]route.Path) (paths []route.Path) {
	n := d.byte()
	if n == samePaths {
		return *before
	}
	defer func() { *before = paths }()
	for ; n > 0 && !d.bad; n-- {
		flags, p := d.byte(), route.Path{Weight: 1}
		if flags&(pathIPv4|pathIPv6) != 0 {
			p.NextHop = d.address(flags&pathIPv6 != 0)
		}
		if flags&pathInterface != 0 {
			p.Interface = d.text()
		}
		if flags&pathTable != 0 {
			p.Table = uint32(d.uint())
		}
		if flags&pathPreference != 0 {
			p.Preference = d.byte()
		}
		if flags&pathWeight != 0 {
			p.Weight = d.byte()
		}
		paths = append(paths, p)
	}
	return paths
}

// checkHeader reads the first block of a segment.
func checkHeader(kind byte, body []byte) (h header, err error) {
	if kind != blockHeader || json.Unmarshal(body, &h) != nil || h.Format != format {
		return h, errors.New("it is no segment of a recorder")
	}
	if h.Version != version {
		return h, fmt.Errorf("it has version %d, this program reads %d", h.Version, version)
	}
	return h, nil
}
