package fib

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"os"
	"time"

	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/route"
)

// The journal says what of ours is in the data plane, so that a restart needs neither a dump nor a
// write. It must never promise more than is true. docs/fib.md has the format.
const (
	journalMagic = "fibjrnl" // followed by a version, which changes with route.Route.Digest too
	// journalVersion is written. Versions 1, without owners, and 2, without objects, are read.
	journalVersion = 3

	blockState      = 1
	blockInterfaces = 2
	blockIntent     = 3
	blockOutcome    = 4

	// compactSlack is how many records a journal may hold beyond twice those alive before it is
	// rewritten.
	compactSlack = 1 << 16
	// journalRetry is the pause before a journal that could not be written is tried again.
	journalRetry = 30 * time.Second
)

var (
	errJournal         = durable.ErrDamaged
	errOtherGeneration = errors.New("written for another generation of the data plane")
)

// journal is the file and who writes it: one goroutine at a time.
type journal struct {
	path        string // "": none
	objectsOnly bool   // routes are not recorded
	file        *os.File
	records     int      // in the file, dead ones included
	interfaces  meanings // as last written
	problem     string
	retry       time.Time
	buf         []byte
}

// open reads the journal of this generation of the data plane and goes on writing to it. A file
// that cannot be written cannot be trusted either: it may have been left behind when it stopped
// being writable.
func (j *journal) open(identity string) (journalled, error) {
	file, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		return journalled{}, err
	}
	found, err := readJournal(bufio.NewReaderSize(file, 1<<18))
	if err == nil && found.identity != identity {
		err = errOtherGeneration
	}
	if err == nil {
		err = file.Truncate(found.valid)
	}
	if err == nil {
		_, err = file.Seek(found.valid, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return journalled{}, fmt.Errorf("journal %s: %w", j.path, err)
	}
	j.close() // adoption may begin again
	j.file, j.records, j.interfaces = file, found.count, found.interfaces
	return found, nil
}

// rewrite replaces the file by one that holds just these records.
func (j *journal) rewrite(identity string, interfaces meanings, records iter.Seq[record]) {
	if j.path == "" {
		return
	}
	if err := j.replace(identity, interfaces, records); err != nil {
		j.broken(err)
	} else {
		j.problem = ""
	}
}

func (j *journal) replace(
	identity string, interfaces meanings, records iter.Seq[record],
) (err error) {
	file, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	next := journal{path: j.path, objectsOnly: j.objectsOnly, file: file, buf: j.buf}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	if err := next.write(appendJournalHeader(nil, identity)); err != nil {
		return err
	}
	if err := next.noteInterfaces(interfaces); err != nil {
		return err
	}
	if err := next.writeState(records); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), j.path); err != nil {
		return err
	}
	j.close()
	*j = next
	return nil
}

func (j *journal) writeState(records iter.Seq[record]) error {
	sure, unsure := durable.StartBlock(nil, blockState), durable.StartBlock(nil, blockIntent)
	for r := range records {
		if j.skips(r) {
			continue
		}
		j.records++
		block := &sure
		if r.unsure {
			block = &unsure
		}
		*block = appendRecord(*block, r)
		if len(*block) < 1<<16 {
			continue
		}
		if err := j.write(durable.EndBlock(*block)); err != nil {
			return err
		}
		*block = durable.StartBlock((*block)[:0], (*block)[durable.BlockHeader])
	}
	for _, block := range [][]byte{sure, unsure} {
		if len(block) > durable.BlockHeader+1 {
			if err := j.write(durable.EndBlock(block)); err != nil {
				return err
			}
		}
	}
	return nil
}

// before writes what b is about to do, after a rewrite where b says so; snapshot gives the records
// for that. A journal that is lost stays so until then: without the snapshot it would not be whole.
func (j *journal) before(b *batch, now time.Time, snapshot func() iter.Seq[record]) {
	if b.rewrite && !now.Before(j.retry) {
		j.rewrite(b.identity, b.interfaces, snapshot())
		if j.file == nil {
			j.retry = now.Add(journalRetry)
		}
	}
	if j.file == nil {
		return
	}
	if err := j.noteInterfaces(b.interfaces); err != nil {
		j.broken(err)
		return
	}
	j.buf = durable.StartBlock(j.buf[:0], blockState)
	n := 0
	for _, r := range b.takeovers {
		n += j.add(r)
	}
	j.append(n, now)
	j.buf, n = durable.StartBlock(j.buf[:0], blockIntent), 0
	for i := range b.ops {
		n += j.add(b.record(i))
	}
	j.append(n, now)
}

// skips reports whether r is not recorded.
func (j *journal) skips(r record) bool { return j.objectsOnly && r.object == nil }

// add adds a record to buf and returns how many that were.
func (j *journal) add(r record) int {
	if j.skips(r) {
		return 0
	}
	j.buf = appendRecord(j.buf, r)
	return 1
}

// record is what will be there after op i.
func (b *batch) record(i int) record {
	r := record{key: b.ops[i].Route.Key, digest: b.digests[i], owner: b.sources[i]}
	if op, ok := b.objects[i]; ok {
		r.object = &op.key
	}
	return r
}

// append writes the block of so many records in buf, if there are any.
func (j *journal) append(records int, now time.Time) {
	if records == 0 || j.file == nil {
		return
	}
	j.records += records
	if err := j.write(durable.EndBlock(j.buf)); err != nil {
		j.broken(err)
		j.retry = now.Add(journalRetry)
	}
}

// after writes how b came out.
func (j *journal) after(b *batch) {
	if j.file == nil || len(b.ops) == 0 {
		return
	}
	j.buf = durable.StartBlock(j.buf[:0], blockOutcome)
	n := uint32(0)
	for i := range b.ops {
		if j.objectsOnly && i >= b.first && i < b.last {
			continue
		}
		if !b.done[i] || b.errs[i] != nil {
			j.buf = binary.BigEndian.AppendUint32(j.buf, n)
		}
		n++
	}
	if n == 0 {
		return
	}
	if err := j.write(durable.EndBlock(j.buf)); err != nil {
		j.broken(err)
		return
	}
	j.buf = durable.StartBlock(j.buf[:0], blockState)
	refused := 0
	for i, op := range b.objects {
		err := b.errs[i]
		if err != nil && !errors.Is(err, route.ErrUnanswered) && !op.before.unsure {
			refused += j.add(op.before)
		}
	}
	j.append(refused, time.Now())
}

// noteInterfaces writes the index of each interface, and after that a doubt about it. To earlier
// versions the last that the block has of a name counts.
func (j *journal) noteInterfaces(interfaces meanings) error {
	if j.interfaces != nil && maps.Equal(interfaces, j.interfaces) {
		return nil
	}
	j.interfaces = interfaces
	j.buf = durable.StartBlock(j.buf[:0], blockInterfaces)
	add := func(name string, index uint32) {
		j.buf = binary.BigEndian.AppendUint32(j.buf, index)
		j.buf = binary.BigEndian.AppendUint16(j.buf, uint16(len(name)))
		j.buf = append(j.buf, name...)
	}
	for name, m := range interfaces {
		if add(name, m.index); m.doubt != 0 {
			add(name, m.doubt)
		}
	}
	return j.write(durable.EndBlock(j.buf))
}

func (j *journal) write(b []byte) error {
	_, err := j.file.Write(b)
	return err
}

// broken gives the journal up. A file that lags behind must not be believed by the next process, so
// it is emptied and removed.
func (j *journal) broken(err error) {
	j.problem = err.Error()
	if j.file != nil {
		j.file.Truncate(0)
		j.close()
	}
	os.Remove(j.path)
	j.records, j.interfaces = 0, nil
}

func (j *journal) close() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

func appendJournalHeader(b []byte, identity string) []byte {
	b = append(append(b, journalMagic...), journalVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(identity)))
	b = append(b, identity...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, durable.Castagnoli))
}

// recordElevated is a bit of a record's address length. An agent that does not know it takes the
// file for damaged.
const recordElevated = 0x80

// recordObject instead of an address length: the prefix length is a kind, and instead of an address
// there are two texts with their length before (2 bytes), interface and name.
const recordObject = 0x40

// A record is: table (4 bytes), prefix length, address length, owner (not in version 1), address,
// digest (8 bytes).
func appendRecord(b []byte, r record) []byte {
	if r.object != nil {
		b = append(b, 0, 0, 0, 0, byte(r.object.Kind), recordObject, byte(r.owner))
		for _, text := range []string{r.object.Interface, r.object.Name} {
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
		}
		return binary.BigEndian.AppendUint64(b, r.digest)
	}
	k := r.key
	a := k.Prefix.Addr()
	b = binary.BigEndian.AppendUint32(b, k.Table)
	size := byte(a.BitLen() / 8)
	if k.Elevated {
		size |= recordElevated
	}
	b = append(b, byte(k.Prefix.Bits()), size, byte(r.owner))
	if a.Is4() {
		a4 := a.As4()
		b = append(b, a4[:]...)
	} else {
		a16 := a.As16()
		b = append(b, a16[:]...)
	}
	return binary.BigEndian.AppendUint64(b, r.digest)
}
