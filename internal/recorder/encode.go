package recorder

import (
	"encoding/binary"
	"net/netip"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Kinds of blocks in a segment.
const (
	blockHeader  = 1 // JSON, the first
	blockState   = 3 // the same: what was the case when the segment began, not what happened
	blockRecords = 2 // the time of day of moment 0 (8 bytes), records
)

// recordKind is what a record begins with; its moment follows.
type recordKind byte

const (
	kindDropped recordKind = iota + 1
	kindCandidate
	kindDecided
	kindSent
	kindAnswered
	// what follows is JSON
	kindFacts
	kindResolved
	kindSurroundings
	kindDatastore
	// of a checkpoint
	kindWantedStands  // as kindCandidate
	kindDecidedStands // as kindDecided
	kindComplete      // the number of the segment, and of keys
	kindSettled       // nothing
	// JSON
	kindForgotten
	kindPlanInputs
	kindPlanned
)

// Flags of a decision.
const (
	isProgrammed byte = 1 << iota
	isWaiting
	isHeld
)

// Flags of a key.
const (
	keyIPv6 byte = 1 << iota
	keyElevated
	keyInTable
)

// Flags of a path.
const (
	pathIPv4 byte = 1 << iota
	pathIPv6
	pathInterface
	pathTable
	pathPreference
	pathWeight // other than 1
)

// samePaths instead of a number of paths: those of the last record of this kind in the block.
const (
	samePaths = 0xff
	maxPaths  = 0xfe // of a record; nobody has more
)

// Flags of an op.
const (
	opPresent byte = 1 << iota // 0 ends a batch
	opIsObject
	opDeletes
	opSameDigest // as the op before
	opSameTime   // queued when that was
)

func flagIf(yes bool, flag byte) byte {
	if yes {
		return flag
	}
	return 0
}

// encoder appends records. Moments are relative to the one before: two bytes where milliseconds lie
// between, and no more than they need when the clock would have stepped back.
// Nearly all routes that come together have their paths in common, which are one slice then and
// cost a byte.
type encoder struct {
	b               []byte
	last            fib.Moment
	wanted, decided []route.Path // of the last candidate and decision
}

func (e *encoder) kind(k recordKind, at fib.Moment) {
	e.b = append(e.b, byte(k))
	e.moment(at)
}

// moment: 0, which is not known, is written as it is, and what is relative as one more.
func (e *encoder) moment(m fib.Moment) {
	if m == 0 {
		e.b = append(e.b, 0)
		return
	}
	d := int64(m - e.last)
	if d >= 0 {
		d++ // 0 stands for no moment
	}
	e.b = binary.AppendVarint(e.b, d)
	e.last = m
}

func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

func (e *encoder) text(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) address(a netip.Addr) {
	if a.Is4() {
		b := a.As4()
		e.b = append(e.b, b[:]...)
	} else {
		b := a.As16()
		e.b = append(e.b, b[:]...)
	}
}

func (e *encoder) key(k route.Key) {
	a := k.Prefix.Addr()
	e.b = append(e.b, flagIf(!a.Is4(), keyIPv6)|flagIf(k.Elevated, keyElevated)|
		flagIf(k.Table != 0, keyInTable), byte(k.Prefix.Bits()))
	e.address(a)
	if k.Table != 0 {
		e.uint(uint64(k.Table))
	}
}

// paths appends them, unless they are those of the record before.
func (e *encoder) paths(paths []route.Path, before *[]route.Path) {
	if len(paths) > 0 && len(paths) == len(*before) && &paths[0] == &(*before)[0] {
		e.b = append(e.b, samePaths)
		return
	}
	*before = paths
	e.b = append(e.b, byte(min(len(paths), maxPaths)))
	paths = paths[:min(len(paths), maxPaths)]
	for _, p := range paths {
		hop := p.NextHop
		flags := flagIf(hop.Is4(), pathIPv4) | flagIf(hop.IsValid() && !hop.Is4(), pathIPv6) |
			flagIf(p.Interface != "", pathInterface) | flagIf(p.Table != 0, pathTable) |
			flagIf(p.Preference != 0, pathPreference) | flagIf(p.Weight != 1, pathWeight)
		e.b = append(e.b, flags)
		if hop.IsValid() {
			e.address(hop)
		}
		if p.Interface != "" {
			e.text(p.Interface)
		}
		if p.Table != 0 {
			e.uint(uint64(p.Table))
		}
		if p.Preference != 0 {
			e.b = append(e.b, p.Preference)
		}
		if p.Weight != 1 {
			e.b = append(e.b, p.Weight)
		}
	}
}

// op appends an op; digest is of the one before it.
func (e *encoder) op(op fib.BatchOp, digest uint64) {
	isSame := op.Digest == digest && op.Digest != 0
	isSince := op.Queued == e.last
	e.b = append(e.b, opPresent|flagIf(op.Object != nil, opIsObject)|
		flagIf(op.Digest == 0, opDeletes)|flagIf(isSame, opSameDigest)|
		flagIf(isSince, opSameTime))
	if o := op.Object; o != nil {
		e.b = append(e.b, byte(o.Kind))
		e.text(o.Interface)
		e.text(o.Name)
	} else {
		e.key(op.Key)
	}
	if op.Digest != 0 && !isSame {
		e.b = binary.BigEndian.AppendUint64(e.b, op.Digest)
	}
	if !isSince {
		e.moment(op.Queued)
	}
}
