package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
)

const (
	answerTime = 5 * time.Second  // for the status, at most
	relayTime  = 20 * time.Second // from one honest speaker to another, at most
	growth     = 768 << 20        // of the reflector's memory, in bytes
	probeEvery = 5 * time.Second
)

// probe is a prefix that FRR outside announces and withdraws, to see that the reflector works.
var probe = netip.MustParsePrefix("10.1.255.0/24")

// measured is the worst that was seen.
type measured struct {
	mu            sync.Mutex // guards the following
	answer, relay time.Duration
	size          int // of the reflector, in bytes
	scenarios     int
	panics        int
	malformed     int
}

func (m *measured) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%d scenarios; %d messages refused, %d panics of the decoder; "+
		"status within %.1f s, relayed within %.1f s, at most %d MiB",
		m.scenarios, m.malformed, m.panics, m.answer.Seconds(), m.relay.Seconds(), m.size>>20)
}

// watch returns the first thing that is not as it must always be; nil when ctx ends.
func (c *cluster) watch(ctx context.Context, m *measured) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	probed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.reflector.Done():
			return fmt.Errorf("the reflector has ended: %w", c.reflector.lastWords())
		case <-c.inner.Done():
			return fmt.Errorf("the node behind it has ended: %w", c.inner.lastWords())
		case <-tick.C:
		}
		err := c.look(ctx, m)
		if err == nil && time.Since(probed) > probeEvery {
			err = c.relay(ctx, m)
			probed = time.Now()
		}
		if err != nil && ctx.Err() == nil && !c.died() {
			return err
		}
	}
}

// died says whether watch is about to see that an agent has ended.
func (c *cluster) died() bool {
	for _, a := range []*agent{c.reflector, c.inner} {
		select {
		case <-a.Done():
			return true
		case <-time.After(500 * time.Millisecond): // a process takes a moment to die
		}
	}
	return false
}

// look sees that the honest sessions are those that they were, and how the reflector is.
func (c *cluster) look(ctx context.Context, m *measured) error {
	start := time.Now()
	since, err := c.sessions(ctx)
	if err != nil {
		return err
	}
	for address, was := range c.since {
		if !since[address].Equal(was) {
			return fmt.Errorf("the session with %s was reset: up since %s, before since %s",
				address, since[address], was)
		}
	}
	size, err := c.reflector.Memory("VmRSS")
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer, m.size = max(m.answer, time.Since(start)), max(m.size, size)
	if size > c.firstSize+growth {
		return fmt.Errorf("the reflector has grown from %d to %d MiB", c.firstSize>>20, size>>20)
	}
	return nil
}

// relay has FRR outside announce a prefix and withdraw it, and sees that BIRD inside gets both.
func (c *cluster) relay(ctx context.Context, m *measured) error {
	for _, announced := range []bool{true, false} {
		if err := c.tor.network(ctx, probe, announced); err != nil {
			return err
		}
		start := time.Now()
		what := fmt.Sprintf("BIRD gets FRR's prefix, announced %t", announced)
		err := netlab.Await(ctx, relayTime, what, func(ctx context.Context) error {
			routes, err := c.bird.Routes(ctx, "protocol Reflector where net = "+probe.String())
			if err == nil && (len(routes) > 0) != announced {
				err = errors.New("it does not")
			}
			return err
		})
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.relay = max(m.relay, time.Since(start))
		m.mu.Unlock()
	}
	return nil
}

var panicText = regexp.MustCompile(`panicked: [^"\\]+`)

// panics are those that an agent has logged and survived, each once.
func (a *agent) panics() []string {
	text, err := os.ReadFile(a.LogPath())
	if err != nil {
		return []string{err.Error()}
	}
	all := panicText.FindAllString(string(text), -1)
	slices.Sort(all)
	return slices.Compact(all)
}

// lastWords is how an agent ended, and what its log has to say to that.
func (a *agent) lastWords() error {
	text, err := os.ReadFile(a.LogPath())
	if err != nil {
		return err
	}
	words := string(text[max(0, len(text)-2000):])
	for _, start := range []string{"\npanic: ", "\nfatal error: ", "\nruntime: "} {
		if i := strings.Index(string(text), start); i >= 0 {
			words = string(text[i+1 : min(len(text), i+4000)])
			break
		}
	}
	return fmt.Errorf("%v\n%s", a.Err(), words)
}
