package repeats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// written runs f in a bubble and returns the lines of its log, without times.
func written(t *testing.T, f func(log *slog.Logger, h *Handler)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		opt := &slog.HandlerOptions{Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}
		h := New(slog.NewTextHandler(&out, opt))
		f(slog.New(h), h)
		h.End()
		for line := range strings.Lines(out.String()) {
			lines = append(lines, strings.TrimSpace(line))
		}
	})
	return lines
}

func want(t *testing.T, got []string, lines ...string) {
	t.Helper()
	if !slices.Equal(got, lines) {
		t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "),
			strings.Join(lines, "\n  "))
	}
}

// The first line comes at once, then one a minute, and when nothing comes any more the next is a
// first again.
func TestARepeatedConditionIsOneLineAMinute(t *testing.T) {
	got := written(t, func(log *slog.Logger, _ *Handler) {
		for i := range 15 { // for 98 s
			log.Warn("it fails", "peer", "a", "err", fmt.Errorf("after %d tries, 1m%ds", i, i),
				"attempt", i)
			time.Sleep(7 * time.Second)
		}
		time.Sleep(3 * time.Minute)
		log.Warn("it fails", "peer", "a", "err", errors.New("after 7 tries, 59s"))
	})
	want(t, got, `level=WARN msg="it fails" peer=a err="after 0 tries, 1m0s" attempt=0`,
		`level=WARN msg="it fails" peer=a err="after 8 tries, 1m8s" attempt=8 repeated=8 `+
			`during=1m0s`,
		`level=WARN msg="it fails" peer=a err="after 14 tries, 1m14s" attempt=14 repeated=6 `+
			`during=1m0s`,
		`level=WARN msg="it fails" peer=a err="after 7 tries, 59s"`)
}

// The page names the fields that name a thing.
func TestNamingFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/logging.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "fields that name a thing have the same value: ")
	list, _, _ = strings.Cut(list, ";")
	var said []string
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(list, -1) {
		said = append(said, m[1])
	}
	all := maps.Clone(about)
	maps.Copy(all, naming)
	if keys := slices.Sorted(maps.Keys(all)); !slices.Equal(said, keys) {
		t.Errorf("docs/logging.md has\n%v, the code\n%v", said, keys)
	}
}

func TestMasked(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "no number": "no number", "table 7": "table #", "1m30.5s, 12µs.": "#, #.",
		"10.0.0.1:179: refused": "#: refused", "at 0xc000123abc": "at #", "fe80::1": "fe80::1",
		"2026-11-27T08:25:17.5Z": "#", "node-7b of 3rd": "node-7b of #", "3 × 4": "# × #",
		"read 10.0.0.1:179->10.0.0.2:40123: EOF": "read #>#: EOF", "1h2m3.5ms": "#",
		"Node(edge-8): 5GiB..": "Node(edge-8): #..", ":.": ":.", "7-of-nine": "7-of-nine",
		"from [fe80::1]:40123: EOF": "from [fe80::1]:#: EOF",
		strings.Repeat("7", 5000):   "#",
	} {
		if got := masked(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Another level, message, peer, prefix or error is another condition; what was counted comes before
// the change.
func TestWhatDiffersIsAnotherCondition(t *testing.T) {
	got := written(t, func(log *slog.Logger, _ *Handler) {
		one := log.With("peer", netip.MustParseAddr("192.0.2.1"))
		two := log.With("peer", netip.MustParseAddr("192.0.2.2"))
		p := func(n int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32)
		}
		for range 3 {
			one.Warn("bad", "prefix", p(1), "err", "no such table 7")
		}
		two.Warn("bad", "prefix", p(1), "err", "no such table 7")
		one.Warn("bad", "prefix", p(2), "err", "no such table 8")
		one.Error("bad", "prefix", p(2), "err", "no such table 8")
		one.Warn("bad", "prefix", p(2), "err", "refused")
		one.Warn("worse", "prefix", p(2), "err", "refused")
		one.Warn("bad", "prefix", p(1), "err", "no such table 9") // known already
	})
	want(t, got, `level=WARN msg=bad peer=192.0.2.1 prefix=10.0.0.1/32 err="no such table 7"`,
		`level=WARN msg=bad peer=192.0.2.2 prefix=10.0.0.1/32 err="no such table 7"`,
		`level=WARN msg=bad peer=192.0.2.1 prefix=10.0.0.1/32 err="no such table 7" repeated=2 `+
			`during=0s`,
		`level=WARN msg=bad peer=192.0.2.1 prefix=10.0.0.2/32 err="no such table 8"`,
		`level=ERROR msg=bad peer=192.0.2.1 prefix=10.0.0.2/32 err="no such table 8"`,
		`level=WARN msg=bad peer=192.0.2.1 prefix=10.0.0.2/32 err=refused`,
		`level=WARN msg=worse peer=192.0.2.1 prefix=10.0.0.2/32 err=refused`,
		`level=WARN msg=bad peer=192.0.2.1 prefix=10.0.0.1/32 err="no such table 9" repeated=1 `+
			`during=0s`)
}

// A peer that has something new each time gets its share of lines and of memory, and no other's.
func TestHostilePeersAreBounded(t *testing.T) {
	const lines = 100_000
	long := strings.Repeat("long ", 10_000)
	got := written(t, func(log *slog.Logger, h *Handler) {
		for i := range lines {
			log.Warn("bad", "peer", "hostile", "prefix", fmt.Sprint(i),
				"err", long)
		}
		if n := h.all.count; n != maxAlike {
			t.Errorf("%d conditions are kept", n)
		}
		log.Warn("bad", "peer", "honest", "prefix", "1")
		time.Sleep(5 * time.Minute)
		h.all.mu.Lock()
		defer h.all.mu.Unlock()
		if n := len(h.all.groups); n != 0 || h.all.count != 0 || h.all.timer != nil {
			t.Errorf("%d groups, %d conditions are left", n, h.all.count)
		}
	})
	if len(got) != maxAlike+3 {
		t.Fatalf("%d lines", len(got))
	}
	if !strings.HasPrefix(got[maxAlike+1], "level=WARN msg=bad peer=honest") ||
		!strings.HasSuffix(got[maxAlike+2], fmt.Sprintf(" others=%d during=1m0s",
			lines-maxAlike-1)) || len(got[maxAlike+2]) > 2*maxText {
		t.Errorf("%.200s\n%.200s", got[maxAlike+1], got[maxAlike+2])
	}
}

// Things without end, such as messages that are made up, are bounded in all.
func TestAllConditionsAreBounded(t *testing.T) {
	got := written(t, func(log *slog.Logger, h *Handler) {
		for i := range 3 * maxConditions {
			log.Warn("bad", "peer", fmt.Sprint("peer ", i))
		}
		if h.all.count != maxConditions || len(h.all.groups) != maxConditions+1 {
			t.Errorf("%d conditions, %d groups", h.all.count, len(h.all.groups))
		}
	})
	if last := got[len(got)-1]; len(got) != maxConditions+2 ||
		!strings.HasSuffix(last, fmt.Sprintf("others=%d during=0s", 2*maxConditions-1)) {
		t.Errorf("%d lines, the last %s", len(got), last)
	}
}

// Who asks for debug wants each line; a level that is off by the time is not written.
func TestLevels(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	h := New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
	log := slog.New(h)
	level.Set(slog.LevelDebug)
	for range 3 {
		log.Debug("step")
		log.Info("turn")
	}
	level.Set(slog.LevelError)
	h.End()
	if n := strings.Count(out.String(), "step"); n != 3 {
		t.Errorf("%d lines of debug", n)
	}
	if n := strings.Count(out.String(), "turn"); n != 1 {
		t.Errorf("%d lines of a level that is off", n)
	}
	level.Set(slog.LevelInfo)
	log.Info("turn") // after the end
	log.Info("turn")
	if n := strings.Count(out.String(), "turn"); n != 3 {
		t.Errorf("%d lines after the end", n)
	}
}

// locked is a value whose text needs a lock under which others log.
type locked struct{ mu *sync.Mutex }

func (l locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "value"
}

// Nobody who logs under a lock waits for one who needs it for a value.
func TestValuesMayTakeLocks(t *testing.T) {
	h := New(slog.NewTextHandler(io.Discard, nil))
	log := slog.New(h)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range 2000 {
		wait.Go(func() { log.Warn("outside", "what", locked{&mu}) })
		wait.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			log.Warn("inside", "what", "text")
		})
	}
	wait.Wait()
	h.End()
}

// What a value says later is not what it said then.
func TestWhatIsCountedIsWrittenAsItWas(t *testing.T) {
	got := written(t, func(log *slog.Logger, _ *Handler) {
		changing := &bytes.Buffer{}
		changing.WriteString("now")
		log.WithGroup("g").Warn("bad", "what", changing)
		log.WithGroup("g").Warn("bad", "what", changing)
		changing.WriteString(" and later")
	})
	want(t, got, `level=WARN msg=bad g.what=now`,
		`level=WARN msg=bad g.what=now g.repeated=1 g.during=0s`)
}
