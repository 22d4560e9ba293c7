package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
)

// honest is a speaker behind the reflector that must not notice any attack.
type honest interface {
	String() string
	// routes are what it has from the reflector, each on a line that starts with the prefix.
	routes(ctx context.Context) ([]string, error)
}

type birdSpeaker struct {
	*netlab.Bird
	address netip.Addr
}

func (b *birdSpeaker) String() string { return fmt.Sprintf("BIRD at %s", b.address) }

func (b *birdSpeaker) routes(ctx context.Context) (lines []string, err error) {
	routes, err := b.Routes(ctx, "protocol Reflector")
	for _, r := range routes {
		lines = append(lines, r.String())
	}
	return lines, err
}

type frrSpeaker struct {
	*netlab.FRR
	name string
	as   int
}

func (f *frrSpeaker) String() string { return "FRR " + f.name }

func (f *frrSpeaker) routes(ctx context.Context) (lines []string, err error) {
	for family, up := range map[string]string{"ipv4": "10.0.0.1", "ipv6": "fd00::1"} {
		paths, err := f.Paths(ctx, family)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			if p.Peer == up {
				lines = append(lines, p.String())
			}
		}
	}
	return lines, nil
}

// network has FRR announce a prefix, or withdraw it.
func (f *frrSpeaker) network(ctx context.Context, p netip.Prefix, announced bool) error {
	line := "network " + p.String()
	if !announced {
		line = "no " + line
	}
	return f.Configure(ctx, fmt.Sprintf("router bgp %d", f.as), "address-family ipv4 unicast", line)
}

type gobgpSpeaker struct {
	*agent
	gobgp, name string
}

func (g *gobgpSpeaker) String() string { return g.name }

func (g *gobgpSpeaker) routes(ctx context.Context) (lines []string, err error) {
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := g.NS.Run(ctx, g.gobgp, "global", "rib", "-j", "-a", family)
		if err != nil {
			return nil, err
		}
		var rib map[string][]struct {
			Stale bool
			Attrs []map[string]json.RawMessage
		}
		if err := json.Unmarshal(out, &rib); err != nil {
			return nil, fmt.Errorf("gobgp global rib: %w: %.200s", err, out)
		}
		for prefix, paths := range rib {
			for _, p := range paths {
				lines = append(lines,
					fmt.Sprint(prefix, " ", p.Stale, " ", attributesText(p.Attrs)))
			}
		}
	}
	return lines, nil
}

func attributesText(attrs []map[string]json.RawMessage) string {
	var b strings.Builder
	for _, a := range attrs {
		text, _ := json.Marshal(a) // was JSON a moment ago
		b.Write(text)
	}
	return b.String()
}

// wild reports whether a line is about a prefix that only attackers announce.
func wild(line string) bool {
	p, err := netip.ParsePrefix(firstWord(line))
	if err != nil {
		return false
	}
	for _, pool := range []string{"10.1.0.0/16", "fd01::/48"} {
		if ours := netip.MustParsePrefix(pool); ours.Overlaps(p) && ours.Bits() <= p.Bits() {
			return false
		}
	}
	return true
}

// fib are the routes that the reflector has programmed, or wants to.
type fib struct{ *agent }

func (f *fib) String() string { return "the reflector's FIB" }

func (f *fib) routes(ctx context.Context) (lines []string, err error) {
	var routes []json.RawMessage
	if err := f.Admin.Get(ctx, "/v1/routes", nil, &routes); err != nil {
		return nil, err
	}
	for _, raw := range routes {
		var r struct{ Prefix string }
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s %s", r.Prefix, raw))
	}
	return lines, nil
}

// tables are the routes of every honest speaker and of the reflector, sorted.
func (c *cluster) tables(ctx context.Context) (all [][]string, err error) {
	for _, h := range c.everybody() {
		lines, err := h.routes(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h, err)
		}
		slices.Sort(lines)
		all = append(all, lines)
	}
	return all, nil
}

// everybody are those whose routes are compared; the reflector's RIB is the last but one.
func (c *cluster) everybody() []honest {
	return append(c.honest[:len(c.honest):len(c.honest)],
		&gobgpSpeaker{c.reflector, c.programs.gobgp, "the reflector's RIB"}, &fib{c.reflector})
}

// compare sees that everybody has the routes of the honest as they were. Routes of attackers are
// those that the reflector has, at most; with clean there are none.
func (c *cluster) compare(ctx context.Context, clean bool) error {
	tables, err := c.tables(ctx)
	if err != nil {
		return err
	}
	allowed := map[string]bool{}
	for _, line := range tables[len(tables)-2] {
		allowed[firstWord(line)] = !clean
	}
	for i, lines := range tables {
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return wild(line) && allowed[firstWord(line)]
		})
		if err := difference(c.baseline[i], lines); err != nil {
			return fmt.Errorf("%s: %w", c.everybody()[i], err)
		}
	}
	return nil
}

func firstWord(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return word
}

// difference names the first few lines that are in one sorted list only.
func difference(want, got []string) error {
	var wrong []string
	for _, line := range got {
		if _, found := slices.BinarySearch(want, line); !found {
			wrong = append(wrong, "has "+line)
		}
	}
	for _, line := range want {
		if _, found := slices.BinarySearch(got, line); !found {
			wrong = append(wrong, "has not "+line)
		}
	}
	if len(wrong) == 0 && len(want) == len(got) {
		return nil
	}
	if len(wrong) > 4 {
		wrong = append(wrong[:4], fmt.Sprintf("and %d more", len(wrong)-4))
	}
	return errors.New(strings.Join(wrong, "\n"))
}

// settle waits for the sessions of the honest speakers and until everybody has everything.
func (c *cluster) settle(ctx context.Context) error {
	up := func(ctx context.Context) (err error) {
		c.since, err = c.sessions(ctx)
		return err
	}
	err := netlab.Await(ctx, time.Minute, "the honest sessions are up", up)
	if err != nil {
		return err
	}
	// Each has what the other machines announce: a block of BIRD, the reflector and the node of
	// ours, a prefix of FRR inside and the bulk of FRR outside, in as many families as it speaks.
	const everything = 3 + 1 + bulk
	want := map[string]int{
		"BIRD at 10.0.0.11": everything - 1, "BIRD at fd00::11": everything - 1,
		"FRR frr": 2 * (everything - 1), "FRR tor": 2 * (everything - bulk),
		"GoBGP":               2 * everything,
		"the reflector's RIB": 2 * everything, "the reflector's FIB": 2 * everything,
	}
	full := func(ctx context.Context) (err error) {
		if c.baseline, err = c.tables(ctx); err != nil {
			return err
		}
		for i, h := range c.everybody() {
			if has, want := len(c.baseline[i]), want[h.String()]; has != want {
				return fmt.Errorf("%s has %d routes, want %d", h, has, want)
			}
		}
		return nil
	}
	if err := netlab.Await(ctx, time.Minute, "everybody has everything", full); err != nil {
		return err
	}
	c.firstSize, err = c.reflector.Memory("VmRSS")
	return err
}

// sessions is when each of the reflector's honest sessions came up. All must be.
func (c *cluster) sessions(ctx context.Context) (map[netip.Addr]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	s, err := c.reflector.Admin.Status(ctx)
	if err != nil {
		return nil, err
	}
	since := map[netip.Addr]time.Time{}
	for _, p := range s.BGP.Peers {
		switch {
		case c.attackers[p.Address]:
		case !p.Established || p.Since == nil:
			return nil, fmt.Errorf("the session with %s is %s: %s", p.Address, p.State, p.LastError)
		default:
			since[p.Address] = *p.Since
		}
	}
	if len(since) != 8 {
		return nil, fmt.Errorf("the reflector has %d honest sessions", len(since))
	}
	return since, nil
}
