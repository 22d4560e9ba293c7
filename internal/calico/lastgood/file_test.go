package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

var written = time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)

var edge5 = reader{node: "edge-5"}

// small is a snapshot that an agent can start from.
func small() *calico.Snapshot {
	block := netip.MustParsePrefix("10.1.0.0/26")
	return &calico.Snapshot{
		Revision: 42,
		Nodes: map[string]calico.Node{"edge-5": {Name: "edge-5",
			IPv4: netip.MustParsePrefix("192.168.4.5/24")}},
		Blocks: map[netip.Prefix]calico.Block{block: {CIDR: block,
			Owner: calico.Owner{Host: "edge-5"}}},
		Affinities: map[netip.Prefix]calico.AffinityState{block: calico.AffinityConfirmed},
		Problems:   []calico.Problem{{Key: "/calico/x", Err: "no"}},
	}
}

func file(t *testing.T, s *calico.Snapshot) []byte {
	t.Helper()
	b, err := encode(edge5, s, written)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fill gives every field that can be reached from v a value that is not its zero: a field that JSON
// leaves out then shows, unless its tag says so.
func fill(v reflect.Value, n *int) {
	*n++
	switch p := v.Addr().Interface().(type) {
	case *netip.Addr:
		*p = netip.AddrFrom4([4]byte{10, 0, byte(*n >> 8), byte(*n)})
		return
	case *netip.Prefix:
		*p = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(*n >> 8), byte(*n)}), 32)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				fill(v.Field(i), n)
			}
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64, reflect.Float32:
		v.SetFloat(float64(*n))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n%100 + 1))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n%100 + 1))
	default:
		panic("fill does not know " + v.Type().String())
	}
}

func TestEveryFieldOfASnapshotIsKept(t *testing.T) {
	s, n := calico.Snapshot{}, 0
	fill(reflect.ValueOf(&s).Elem(), &n)
	if n < 80 {
		t.Fatalf("only %d values were filled in", n)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back calico.Snapshot
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, back) {
		t.Errorf("a snapshot changes on its way through JSON:\n%+v\n%+v", s, back)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	got, when, err := decode(edge5, bytes.NewReader(file(t, small())))
	if err != nil {
		t.Fatal(err)
	}
	if want := small(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !when.Equal(written) {
		t.Errorf("written %s", when)
	}
}

// Without BGP nodes need not be registered.
func TestWithoutBGPNoNodeIsNeeded(t *testing.T) {
	r := reader{"edge-5", calico.Needs{NoBGP: true, Hosts: calico.DefaultHosts}}
	s := small()
	s.Nodes, s.PeerIPs = nil, map[calico.PeerIP]netip.Addr{
		{Host: "edge-3"}: netip.MustParseAddr("10.0.0.3"),
	}
	b, err := encode(r, s, written)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decode(r, bytes.NewReader(b))
	if err != nil || !r.good(s) || !reflect.DeepEqual(got, s) {
		t.Errorf("got %+v, %v", got, err)
	}
	if r.good(&calico.Snapshot{}) {
		t.Error("nothing at all is good")
	}
}

// sealed puts a right header in front of any body.
func sealed(body string) []byte {
	sum := sha256.Sum256([]byte(body))
	return fmt.Appendf(nil,
		"{\"format\":%q,\"version\":1,\"node\":\"edge-5\",\"size\":%d,\"sha256\":%q}\n%s", format,
		len(body), hex.EncodeToString(sum[:]), body)
}

func TestUnusableFilesAreRefusedWithAReason(t *testing.T) {
	whole := file(t, small())
	other, err := encode(reader{node: "edge-6"}, small(), written)
	if err != nil {
		t.Fatal(err)
	}
	more, err := encode(reader{"edge-5", calico.Needs{Hosts: calico.DefaultHosts}}, small(),
		written)
	if err != nil {
		t.Fatal(err)
	}
	empty := small()
	empty.Nodes = nil
	migrating := small()
	migrating.DatastoreNotReady = true
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-3] ^= 1
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":      {nil, "no snapshot of an agent"},
		"garbage":    {[]byte("\x00\xff\n\n"), "no snapshot of an agent"},
		"other JSON": {[]byte("{\"version\":1}\n{}"), "no snapshot of an agent"},
		"endless first line": {bytes.Repeat([]byte("x"), maxHeader+10),
			"no snapshot of an agent"},
		"cut in the header": {whole[:20], "no snapshot of an agent"},
		"cut in the body":   {whole[:len(whole)-1], "cut short"},
		"one bit is wrong":  {flipped, "checksum"},
		"something behind":  {append(bytes.Clone(whole), ' '), "checksum"},
		"of another node":   {other, `for node "edge-6"`},
		"read with more":    {more, "another --learn"},
		"of a later version": {bytes.Replace(whole, []byte(`"version":1`),
			[]byte(`"version":9`), 1), "version 9"},
		"without this node":      {file(t, empty), "does not contain Node(edge-5)"},
		"of a migrating cluster": {file(t, migrating), "does not contain Node(edge-5)"},
		"body is no snapshot":    {sealed(`[1]`), "cannot be decoded"},
		"block with host bits": {
			sealed(`{"Nodes":{"edge-5":{}},"Blocks":{"10.1.0.1/26":{"CIDR":"10.1.0.1/26"}}}`),
			"block 10.1.0.1/26 is none",
		},
		"pool without CIDR": {sealed(`{"Nodes":{"edge-5":{}},"IPPools":{"p":{"CIDR":""}}}`),
			"IPPool(p) has no CIDR"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := decode(edge5, bytes.NewReader(c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestFileOfAnAgentWithoutVXLAN is read by one with VXLAN, unless what it lacks is needed.
func TestFileOfAnAgentWithoutVXLAN(t *testing.T) {
	now := reader{"edge-5", calico.Needs{VXLAN: true}}
	if _, _, err := decode(now, bytes.NewReader(file(t, small()))); err != nil {
		t.Error(err)
	}
	s := small()
	pool := netip.MustParsePrefix("10.1.0.0/16")
	s.IPPools = map[string]calico.IPPool{"p": {Name: "p", CIDR: pool,
		VXLANMode: calico.EncapCrossSubnet}}
	_, _, err := decode(now, bytes.NewReader(file(t, s)))
	if err == nil || !strings.Contains(err.Error(), "lacks the blocks of other nodes") {
		t.Errorf("with VXLAN: %v", err)
	}
	later, err := encode(now, s, written)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []reader{now, edge5} {
		if _, _, err := decode(r, bytes.NewReader(later)); err != nil {
			t.Errorf("by %+v: %v", r.needs, err)
		}
	}
}

// FuzzFile decodes any bytes, and any body behind a header that fits. What is accepted can be
// written and read again.
func FuzzFile(f *testing.F) {
	whole, err := encode(edge5, small(), written)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	_, body, _ := bytes.Cut(whole, []byte("\n"))
	f.Add(body)
	f.Add([]byte(`{"Nodes":{"edge-5":{"IPv4":"10.0.0.1/33"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, in := range [][]byte{raw, sealed(string(raw))} {
			s, _, err := decode(edge5, bytes.NewReader(in))
			if err != nil {
				continue
			}
			again, err := encode(edge5, s, written)
			if err != nil {
				t.Fatalf("accepted, but cannot be written: %v", err)
			}
			if _, _, err := decode(edge5, bytes.NewReader(again)); err != nil {
				t.Fatalf("accepted, but not a second time: %v", err)
			}
		}
	})
}
