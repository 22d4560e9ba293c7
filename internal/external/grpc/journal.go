package grpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"

	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/external"
)

// The journal has each transaction in a line of its own: the CRC-32C of what follows, a blank, and
// a record in JSON. docs/decisions/0019 says why it is no database.

const (
	// journalFormat is in the first record; of textFormat, the first, puts were another way.
	journalFormat = 2
	textFormat    = 1
	// slack is how much longer the file may be than twice what it was when it was rewritten.
	slack = 1 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errDamaged = errors.New("damaged")
)

// record is a line of the journal.
type record struct {
	// Format is in the first record alone, and so are Incomplete: what clients wanted was lost, and
	// none has said all that it wants since; and Rewritten: how many records the file had when it
	// was rewritten.
	Format     int  `json:"format,omitempty"`
	Incomplete bool `json:"incomplete,omitempty"`
	Rewritten  int  `json:"rewritten,omitempty"`

	Txn     int64     `json:"txn,omitempty"`
	Source  string    `json:"source,omitempty"`
	Puts    keptItems `json:"puts,omitempty"`
	Deletes []string  `json:"deletes,omitempty"`
	// Replace: the client wants nothing but Puts and what it wanted of them before.
	Replace bool `json:"replace,omitempty"`
	// Atomic: it counts only if it is confirmed.
	Atomic bool `json:"atomic,omitempty"`

	Confirms  int64 `json:"confirms,omitempty"`  // the atomic transaction that counts
	RollsBack int64 `json:"rollsBack,omitempty"` // the one that does not

	// Labels are those of puts that have some, by key, in textFormat.
	Labels map[string]map[string]string `json:"labels,omitempty"`
}

// kept is an item that a client wants from then on.
type kept struct {
	Key    string            `json:"key"`
	Value  []byte            `json:"value"` // the encoded message
	Labels map[string]string `json:"labels,omitempty"`
	Text   string            `json:"text,omitempty"` // instead of Value, in JSON, of textFormat
}

type keptItems []kept

// UnmarshalJSON reads textFormat, too: an object of values in JSON, by key.
func (p *keptItems) UnmarshalJSON(b []byte) error {
	if !bytes.HasPrefix(b, []byte("{")) {
		return json.Unmarshal(b, (*[]kept)(p))
	}
	var texts map[string]string
	err := json.Unmarshal(b, &texts)
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		*p = append(*p, kept{Key: key, Text: texts[key]})
	}
	return err
}

// item decodes what is kept.
func (k kept) item() external.Item {
	item := external.DecodeBinary(k.Key, k.Value)
	if k.Text != "" {
		item = external.DecodeJSON(k.Key, []byte(k.Text), external.Item{})
	}
	item.Labels = k.Labels
	return item
}

// journal is the file that keeps what clients want. It is not safe for concurrent use.
type journal struct {
	path string
	file *os.File // nil: it cannot be written, err says why
	size int64
	base int64 // its size when it was rewritten
	err  error
}

// readJournal returns the records of a file; none: there is no file. A last line that is not whole
// belongs to a transaction that nobody was told of, unless the file was rewritten with it.
func readJournal(path string) ([]record, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(content, []byte("\n"))
	var out []record
	for i, line := range lines[:len(lines)-1] {
		r, err := decodeRecord(line)
		if err == nil && (i == 0) != (r.Format == journalFormat || r.Format == textFormat) {
			err = errDamaged
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d is %w", path, i+1, err)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: it is %w: it has no first line", path, errDamaged)
	}
	if whole := out[0].Rewritten; len(out) < whole {
		return nil, fmt.Errorf("%s: it is %w: it has %d of %d lines", path, errDamaged, len(out),
			whole)
	}
	return out, nil
}

func decodeRecord(line []byte) (r record, err error) {
	sum, body, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(n) != crc32.Checksum(body, castagnoli) {
		return r, errDamaged
	}
	return r, json.Unmarshal(body, &r)
}

func appendRecord(to []byte, r record) ([]byte, error) {
	const sum = "01234567"
	line := bytes.NewBuffer(append(append(to, sum...), ' '))
	if err := json.NewEncoder(line).Encode(r); err != nil { // with a line feed
		return nil, err
	}
	all := line.Bytes()
	at, body := len(to), len(to)+len(sum)+1
	copy(all[at:], fmt.Sprintf("%08x", crc32.Checksum(all[body:len(all)-1], castagnoli)))
	return all, nil
}

// rewrite replaces the file by one with just these records. After an error the journal is as it
// was, or cannot be written before a rewrite that succeeds.
func (j *journal) rewrite(records []record) error {
	var content []byte
	var err error
	for _, r := range records {
		if err == nil {
			content, err = appendRecord(content, r)
		}
	}
	if err == nil {
		err = durable.WriteFile(j.path, content)
	}
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0)
	}
	if err != nil {
		if !j.isNamed() { // nobody would find what is written to it
			j.close()
			j.err = err
		}
		return err
	}
	j.close()
	j.file, j.size, j.base, j.err = file, int64(len(content)), int64(len(content)), nil
	return nil
}

// isNamed reports whether the file that is written is still the one at path.
func (j *journal) isNamed() bool {
	if j.file == nil {
		return false
	}
	named, err := os.Stat(j.path)
	written, err2 := j.file.Stat()
	return err == nil && err2 == nil && os.SameFile(named, written)
}

// isLong reports whether a rewrite is worth its while.
func (j *journal) isLong() bool { return j.size > 2*j.base+slack }

// append adds a record, which survives a crash of the host when it returns. After an error the file
// is as it was.
func (j *journal) append(r record) error {
	if j.file == nil {
		return j.err
	}
	line, err := appendRecord(nil, r)
	if err != nil {
		return err
	}
	if _, err = j.file.Write(line); err == nil {
		err = j.file.Sync()
	}
	if err == nil {
		j.size += int64(len(line))
		return nil
	}
	if undo := j.file.Truncate(j.size); undo != nil {
		j.close() // its end is not known: only a rewrite helps
		j.err = err
	}
	return err
}

func (j *journal) close() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}
