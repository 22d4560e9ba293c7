package fib

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"

	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/route"
)

// journalled is what a journal says.
type journalled struct {
	identity   string
	version    int
	digests    map[route.Key]uint64   // what is there; 0 where that is not known at all
	unsure     map[route.Key]bool     // keys of digests that are a guess
	owners     map[route.Key]sourceID // whose those are; not of version 1
	objects    map[route.ObjectKey]record
	interfaces meanings
	count      int   // of records read
	valid      int64 // bytes up to the end of the last whole block
}

// JournalInterfaces returns the names of the interfaces that a journal speaks of; none if it cannot
// be read.
func JournalInterfaces(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	found, _ := readJournal(bufio.NewReader(file)) // adoption reports what is wrong
	return slices.Sorted(maps.Keys(found.interfaces))
}

// readJournal reads a whole journal, as far as it was completely written.
func readJournal(r io.Reader) (journalled, error) {
	found := journalled{
		digests: make(map[route.Key]uint64), unsure: make(map[route.Key]bool),
		owners: make(map[route.Key]sourceID), objects: make(map[route.ObjectKey]record),
	}
	if err := found.readHeader(r); err != nil {
		return journalled{}, err
	}
	var open []record // the intent that has no outcome yet
	blocks := durable.NewBlockReader(r, found.valid)
	for {
		kind, body, err := blocks.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			open, err = found.take(kind, body, open)
		}
		if err != nil {
			return journalled{}, err
		}
		found.valid = blocks.Valid
	}
	found.doubt(open)
	return found, nil
}

func (f *journalled) readHeader(r io.Reader) error {
	start := len(journalMagic) + 1
	b := make([]byte, start+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("%w: no header", errJournal)
	}
	f.version = int(b[start-1])
	if string(b[:start-1]) != journalMagic || f.version < 1 || f.version > journalVersion {
		return fmt.Errorf("%w: not a journal, or of another version", errJournal)
	}
	rest := make([]byte, int(binary.BigEndian.Uint16(b[start:]))+4)
	if _, err := io.ReadFull(r, rest); err != nil {
		return fmt.Errorf("%w: no header", errJournal)
	}
	b = append(b, rest...)
	end := len(b) - 4
	if crc32.Checksum(b[:end], durable.Castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return fmt.Errorf("%w: bad header", errJournal)
	}
	f.identity, f.valid = string(b[start+2:end]), int64(len(b))
	return nil
}

// take folds one block into f; open is the intent without outcome before and after it.
func (f *journalled) take(kind byte, body []byte, open []record) ([]record, error) {
	switch kind {
	case blockState, blockIntent:
		var records []record
		for len(body) > 0 {
			r, rest, err := f.cutRecord(body)
			if err != nil {
				return nil, err
			}
			body = rest
			f.count++
			records = append(records, r)
		}
		if kind == blockIntent {
			f.doubt(open)
			return records, nil
		}
		for _, r := range records {
			f.settle(r)
		}
		return open, nil
	case blockOutcome:
		return nil, f.resolve(body, open)
	case blockInterfaces:
		return open, f.takeInterfaces(body)
	}
	return nil, fmt.Errorf("%w: unknown block %d", errJournal, kind)
}

// settle: r is what is there.
func (f *journalled) settle(r record) {
	if r.object != nil {
		if f.objects[*r.object] = r; r.digest == 0 {
			delete(f.objects, *r.object)
		}
		return
	}
	delete(f.unsure, r.key)
	if r.digest == 0 {
		delete(f.digests, r.key)
		delete(f.owners, r.key)
	} else {
		f.digests[r.key] = r.digest
		f.own(r)
	}
}

// doubt: each of records may be there, or what was there before.
func (f *journalled) doubt(records []record) {
	for _, r := range records {
		if r.object != nil {
			if before := f.objects[*r.object]; before.digest != 0 {
				r = before // the better guess
			}
			r.unsure = true
			f.objects[*r.object] = r
			continue
		}
		f.unsure[r.key] = true
		if f.digests[r.key] == 0 {
			f.digests[r.key] = r.digest // the better guess
			f.own(r)
		}
	}
}

func (f *journalled) own(r record) {
	if r.owner != unknownSource {
		f.owners[r.key] = r.owner
	}
}

// all yields what may be there.
func (f *journalled) all(yield func(record) bool) {
	for k, digest := range f.digests {
		r := record{key: k, digest: digest, owner: f.owners[k], unsure: f.unsure[k]}
		if !yield(r) {
			return
		}
	}
	for _, r := range f.objects {
		if !yield(r) {
			return
		}
	}
}

// forget drops the objects on interfaces that now have another index, or are gone. What is an
// interface itself may be the new one.
func (f *journalled) forget(now map[string]uint32) {
	changed := changedInterfaces(f.interfaces.toObjects(), now)
	for k, r := range f.objects {
		_, there := now[k.Interface]
		switch {
		case !changed[k.Interface]:
		case there && k.IsInterface():
			r.unsure = true
			f.objects[k] = r
		default:
			delete(f.objects, k)
		}
	}
}

// resolve ends an intent: body lists the ops that were not acknowledged.
func (f *journalled) resolve(body []byte, open []record) error {
	if len(body)%4 != 0 {
		return fmt.Errorf("%w: bad outcome", errJournal)
	}
	failed := make(map[uint32]bool)
	for ; len(body) > 0; body = body[4:] {
		i := binary.BigEndian.Uint32(body)
		if int64(i) >= int64(len(open)) {
			return fmt.Errorf("%w: outcome without intent", errJournal)
		}
		failed[i] = true
	}
	for i, r := range open {
		if failed[uint32(i)] {
			f.doubt([]record{r})
		} else {
			f.settle(r)
		}
	}
	return nil
}

func (f *journalled) takeInterfaces(body []byte) error {
	f.interfaces = make(meanings)
	for len(body) > 0 {
		if len(body) < 6 || len(body) < 6+int(binary.BigEndian.Uint16(body[4:])) {
			return fmt.Errorf("%w: bad interface", errJournal)
		}
		n := int(binary.BigEndian.Uint16(body[4:]))
		name, index := string(body[6:6+n]), binary.BigEndian.Uint32(body)
		m, known := f.interfaces[name]
		if !known {
			m.index = index
		}
		if index == noIndex || index == anewIndex {
			m.doubt = index
		}
		f.interfaces[name] = m
		body = body[6+n:]
	}
	return nil
}

func (f *journalled) cutRecord(b []byte) (r record, rest []byte, err error) {
	start := 6 + min(f.version-1, 1) // of the address
	if len(b) < start {
		return r, nil, fmt.Errorf("%w: bad record", errJournal)
	}
	// else it is of a source that this agent does not have
	if f.version > 1 && sourceID(b[6]) < numSources {
		r.owner = sourceID(b[6])
	}
	if b[5] == recordObject && f.version > 2 {
		return cutObject(r, b[4], b[start:])
	}
	n := int(b[5] &^ recordElevated)
	if n != 4 && n != 16 || len(b) < start+n+8 {
		return r, nil, fmt.Errorf("%w: bad record", errJournal)
	}
	a, _ := netip.AddrFromSlice(b[start : start+n])
	p := netip.PrefixFrom(a, int(b[4]))
	if !p.IsValid() || p != p.Masked() || a.Is4In6() {
		return r, nil, fmt.Errorf("%w: bad prefix", errJournal)
	}
	r.key = route.Key{
		Table: binary.BigEndian.Uint32(b), Elevated: b[5]&recordElevated != 0, Prefix: p,
	}
	r.digest = binary.BigEndian.Uint64(b[start+n:])
	return r, b[start+n+8:], nil
}

func cutObject(r record, kind byte, b []byte) (_ record, rest []byte, err error) {
	r.object = &route.ObjectKey{Kind: route.ObjectKind(kind)}
	for _, text := range []*string{&r.object.Interface, &r.object.Name} {
		if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
			return r, nil, fmt.Errorf("%w: bad object", errJournal)
		}
		end := 2 + int(binary.BigEndian.Uint16(b))
		*text, b = string(b[2:end]), b[end:]
	}
	if len(b) < 8 {
		return r, nil, fmt.Errorf("%w: bad object", errJournal)
	}
	r.digest = binary.BigEndian.Uint64(b)
	return r, b[8:], nil
}
