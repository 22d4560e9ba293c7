package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A file that only grows is a sequence of blocks. A block is: the length of what follows the
// header, a checksum of these four bytes, a checksum of what follows (CRC-32C, big endian); then a
// byte for the kind of block, and its body. So a torn tail is told from damage.
const (
	// BlockHeader is how many bytes of a block come before its kind.
	BlockHeader = 12
	// MaxBlock bounds a block without its header.
	MaxBlock = 1 << 24
)

// Castagnoli is the table of CRC-32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged says that what is in a file is not what was written.
var ErrDamaged = errors.New("damaged")

// StartBlock begins a block: it leaves room for the header, which EndBlock fills in.
func StartBlock(b []byte, kind byte) []byte {
	return append(append(b, make([]byte, BlockHeader)...), kind)
}

// EndBlock ends the block that b begins with.
func EndBlock(b []byte) []byte {
	payload := b[BlockHeader:]
	binary.BigEndian.PutUint32(b[0:], uint32(len(payload)))
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[0:4], Castagnoli))
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(payload, Castagnoli))
	return b
}

// BlockReader reads blocks.
type BlockReader struct {
	// Valid is where the last whole block ended, in bytes.
	Valid int64

	from    io.Reader
	header  [BlockHeader]byte
	payload []byte
}

// NewBlockReader reads from r, which is at byte start of its file.
func NewBlockReader(r io.Reader, start int64) *BlockReader {
	return &BlockReader{Valid: start, from: r}
}

// Next returns the next block, whose body is valid until the next call; io.EOF after the last whole
// one, also when a torn one follows.
func (r *BlockReader) Next() (kind byte, body []byte, err error) {
	if _, err := io.ReadFull(r.from, r.header[:]); err != nil {
		return 0, nil, torn(err)
	}
	size := binary.BigEndian.Uint32(r.header[0:])
	if crc32.Checksum(r.header[0:4], Castagnoli) != binary.BigEndian.Uint32(r.header[4:]) ||
		size == 0 || size > MaxBlock {
		return 0, nil, fmt.Errorf("%w: bad block header at byte %d", ErrDamaged, r.Valid)
	}
	if cap(r.payload) < int(size) {
		r.payload = make([]byte, size)
	}
	r.payload = r.payload[:size]
	if _, err := io.ReadFull(r.from, r.payload); err != nil {
		return 0, nil, torn(err)
	}
	if crc32.Checksum(r.payload, Castagnoli) != binary.BigEndian.Uint32(r.header[8:]) {
		return 0, nil, fmt.Errorf("%w: bad checksum at byte %d", ErrDamaged, r.Valid)
	}
	r.Valid += BlockHeader + int64(size)
	return r.payload[0], r.payload[1:], nil
}

func torn(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}
