package gobgp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/bgp"
)

// A panic while GoBGP applies a message ends the process. A peer whose messages do that again and
// again is shut for a while: crashLimit ends within crashWindow cost it crashPenalty.
const (
	crashLimit   = 3
	crashWindow  = 10 * time.Minute
	crashPenalty = time.Hour
)

// crash is one end of the process.
type crash struct {
	Peer  bgp.PeerID `json:"peer"`  // whose message or session was being handled
	At    time.Time  `json:"at"`    // when
	Panic string     `json:"panic"` // what, and where in GoBGP
}

// crashes are the ends of earlier processes, from a file that the one that ends writes.
type crashes struct {
	file string // "": they are forgotten
	log  *slog.Logger

	mu  sync.Mutex
	all []crash // oldest first
}

// readCrashes reads the file. One that cannot be read is as good as none: it must not keep BGP from
// starting.
func readCrashes(file string, log *slog.Logger, now time.Time) *crashes {
	c := &crashes{file: file, log: log}
	if file == "" {
		return c
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c
	}
	if err == nil {
		err = json.Unmarshal(text, &c.all)
	}
	if err != nil {
		c.all = nil
		log.Warn("which peers' messages ended earlier processes is not known", "err", err)
	}
	for _, e := range c.all {
		if now.Sub(e.At) < crashWindow {
			log.Warn("an earlier process ended while it handled what this peer sent",
				"peer", e.Peer, "at", e.At, "panic", e.Panic)
		}
	}
	return c
}

// note writes down why the process is about to end.
func (c *crashes) note(peer bgp.PeerID, what string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(e crash) bool {
		return now.Sub(e.At) > crashPenalty+crashWindow
	})
	c.all = append(c.all, crash{peer, now, what})
	c.log.Error("GoBGP panicked while it handled what this peer sent, and the process ends",
		"peer", peer, "panic", what)
	if c.file == "" {
		return
	}
	text, err := json.Marshal(c.all)
	if err == nil {
		err = os.WriteFile(c.file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(c.file+".new", c.file)
	}
	if err != nil {
		c.log.Error("the next process will not know whose message it was", "err", err)
	}
}

// shut says why a peer is not configured, and until when; "" where it may be.
func (c *crashes) shut(peer bgp.PeerID, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last []crash // of the peer, up to crashLimit
	for _, e := range c.all {
		if e.Peer != peer || e.At.After(now) {
			continue
		}
		if last = append(last, e); len(last) > crashLimit {
			last = last[1:]
		}
		end := e.At.Add(crashPenalty)
		if len(last) == crashLimit && e.At.Sub(last[0].At) <= crashWindow && now.Before(end) {
			return fmt.Sprintf("what it sent ended the process %d times within %s, the last time "+
				"with: %s; it is shut until %s",
				crashLimit, crashWindow, e.Panic, end.UTC().Format(time.RFC3339))
		}
	}
	return ""
}
