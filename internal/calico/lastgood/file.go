package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"vpp-route-agent/internal/calico"
)

// A file is two lines of JSON: a header, with length and checksum of the second line, and the
// snapshot. Fields of a snapshot are only added, and zero means "absent" for each, so that older
// and newer agents read each other's files. Otherwise the version changes. No secrets are in a
// snapshot.
const (
	format  = "vpp-route-agent last good snapshot"
	version = 1

	// maxSize bounds the file. 10 000 nodes with 50 000 blocks are about 100 MB.
	maxSize = 256 << 20
	// maxHeader bounds the first line.
	maxHeader = 4 << 10
)

// reader is the node that a file is for, and which keys its agent reads. A snapshot lacks all
// others.
type reader struct {
	node  string
	needs calico.Needs
}

// header is the first line.
type header struct {
	Format   string       `json:"format"`
	Version  int          `json:"version"`
	Node     string       `json:"node"`
	Reads    calico.Needs `json:"reads,omitzero"` // what was read of etcd; zero: all that BGP needs
	Revision int64        `json:"revision"`
	Written  time.Time    `json:"written"`
	Size     int          `json:"size"`
	SHA256   string       `json:"sha256"`
}

// encode returns the file of s for r.
func encode(r reader, s *calico.Snapshot, now time.Time) ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	head, err := json.Marshal(header{
		Format: format, Version: version, Node: r.node, Reads: r.needs, Revision: s.Revision,
		Written: now.UTC(), Size: len(body), SHA256: hex.EncodeToString(sum[:]),
	})
	if err != nil {
		return nil, err
	}
	if len(body) > maxSize {
		return nil, fmt.Errorf("the snapshot has %d MiB, more than the %d MiB that are kept",
			len(body)>>20, maxSize>>20)
	}
	return append(append(head, '\n'), body...), nil
}

// decode reads a file written for r. An error says why it cannot be used.
func decode(r reader, in io.Reader) (*calico.Snapshot, time.Time, error) {
	raw, err := io.ReadAll(io.LimitReader(in, maxHeader+maxSize+1))
	if err != nil {
		return nil, time.Time{}, err
	}
	line, body, ok := bytes.Cut(raw, []byte("\n"))
	var h header
	if !ok || len(line) > maxHeader || json.Unmarshal(line, &h) != nil || h.Format != format {
		return nil, time.Time{}, errors.New("it is no snapshot of an agent")
	}
	switch sum := sha256.Sum256(body); {
	case h.Version != version:
		return nil, time.Time{}, fmt.Errorf("it has version %d, this agent reads %d", h.Version,
			version)
	case h.Node != r.node:
		return nil, time.Time{}, fmt.Errorf("it was written for node %q", h.Node)
	case withoutVXLAN(h.Reads) != withoutVXLAN(r.needs):
		return nil, time.Time{}, errors.New("it was written with another --learn, " +
			"--blocks-prefix or --hosts-prefix")
	case len(body) < h.Size:
		return nil, time.Time{}, fmt.Errorf("it is cut short: %d of %d bytes", len(body), h.Size)
	case len(body) > h.Size || hex.EncodeToString(sum[:]) != h.SHA256:
		return nil, time.Time{}, errors.New("it is damaged: its checksum does not fit")
	}
	s := &calico.Snapshot{}
	if err := json.Unmarshal(body, s); err != nil {
		return nil, time.Time{}, fmt.Errorf("it cannot be decoded: %w", err)
	}
	if err := check(r, s); err != nil {
		return nil, time.Time{}, err
	}
	if r.needs.VXLAN && !h.Reads.VXLAN && calico.HasVXLAN(s.IPPools) {
		return nil, time.Time{}, errors.New("it lacks the blocks of other nodes, which its pools " +
			"with vxlanMode need: the agent that wrote it had no VXLAN")
	}
	// nothing was listed since the start: the next list counts as the first
	s.Revision, s.Lists = h.Revision, 0
	return s, h.Written, nil
}

// withoutVXLAN are the needs where no pool has VXLAN.
func withoutVXLAN(n calico.Needs) calico.Needs {
	n.VXLAN = false
	return n
}

// check rejects what package calico's decoders never return: prefixes are keys, and unmasked ones
// would never match.
func check(r reader, s *calico.Snapshot) error {
	if !r.good(s) && r.needs.NoBGP {
		return errors.New("it contains no block")
	} else if !r.good(s) {
		return fmt.Errorf("it does not contain Node(%s)", r.node)
	}
	for cidr, b := range s.Blocks {
		if !network(cidr) || b.CIDR != cidr {
			return fmt.Errorf("block %s is none", cidr)
		}
	}
	for cidr := range s.Affinities {
		if !network(cidr) {
			return fmt.Errorf("block affinity %s is none", cidr)
		}
	}
	for name, p := range s.IPPools {
		if !network(p.CIDR) {
			return fmt.Errorf("IPPool(%s) has no CIDR", name)
		}
	}
	return nil
}

func network(p netip.Prefix) bool { return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6() }

// good reports whether an agent can start from s. Without BGP, nodes need not be registered, but at
// least one block must be known.
func (r reader) good(s *calico.Snapshot) bool {
	_, known := s.Nodes[r.node]
	if r.needs.NoBGP {
		known = len(s.Blocks) > 0
	}
	return known && !s.DatastoreNotReady
}

// read returns the snapshot in the file at path.
func read(path string, r reader) (*calico.Snapshot, time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	s, written, err := decode(r, f)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, written, nil
}
