package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/testcluster"
)

// scenario is what attackers do, one step after the other: on connections to the reflector, each
// with a name. In a file it has a line for each step; docs/fuzzing.md has the language.
type scenario struct {
	name      string
	generated bool     // by a seed
	about     []string // comments
	steps     []step
}

// step is one line. Which fields matter, the verb says.
type step struct {
	on     string // the connection
	verb   verb
	to     string // dial, connect, accept: "i4.1", or one of services
	times  int    // send: how often
	bytes  []byte // send
	kind   byte   // await: the message type
	pause  time.Duration
	code   [2]int       // told: of a NOTIFICATION; a subcode of -1 is any
	prefix netip.Prefix // routed, unrouted
	where  string       // routed, unrouted: at speakers with this in their name; "": at all
}

type verb string

const (
	dial     verb = "dial"    // connect until the reflector sends its OPEN: it does not while idle
	connect  verb = "connect" // once, whatever comes of it
	accept   verb = "accept"  // wait for the reflector to connect
	send     verb = "send"
	await    verb = "await" // wait for a message, but not for long
	mute     verb = "mute"  // read no more
	shut     verb = "shut"  // half-close
	reset    verb = "reset"
	closing  verb = "close"
	pause    verb = "pause"
	told     verb = "told" // by a NOTIFICATION, or it is a finding
	up       verb = "up"   // the session is up, or it is a finding
	routed   verb = "routed"
	unrouted verb = "unrouted"
)

// services are what an attacker reaches besides BGP.
var services = []string{"admin", "metrics", "grpc"}

var awaited = map[string]byte{
	"open": testcluster.MsgOpen, "update": testcluster.MsgUpdate,
	"notification": testcluster.MsgNotification,
	"keepalive":    testcluster.MsgKeepalive, "refresh": testcluster.MsgRefresh,
}

// ownID stands in a scenario for the BGP identifier of its sender.
var ownID = netip.MustParseAddr("127.0.240.1")

// String is the scenario as a file has it.
func (s scenario) String() string {
	var b strings.Builder
	for _, line := range s.about {
		b.WriteString(strings.TrimSpace("# "+line) + "\n")
	}
	for _, step := range s.steps {
		b.WriteString(step.String() + "\n")
	}
	return b.String()
}

func (s step) String() string {
	words := []string{s.on, string(s.verb)}
	switch s.verb {
	case dial, connect, accept:
		words = append(words, s.to)
	case send:
		if s.times > 1 {
			words = append(words, fmt.Sprintf("%dx", s.times))
		}
		words = append(words, hexWords(s.bytes))
	case await:
		for name, kind := range awaited {
			if kind == s.kind {
				words = append(words, name)
			}
		}
	case pause:
		words = append(words, s.pause.String())
	case told:
		words = append(words, fmt.Sprintf("%d/%d", s.code[0], s.code[1]))
	case routed, unrouted:
		words = append(words, s.prefix.String(), s.where)
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// hexWords sets off the header of each BGP message: its marker, its length and its type.
func hexWords(b []byte) string {
	var words []string
	for len(b) >= testcluster.HeaderLength && bytes.Equal(b[:16], keepalive[:16]) {
		n := min(max(int(b[16])<<8|int(b[17]), testcluster.HeaderLength), len(b))
		words = append(words, fmt.Sprintf("%x %x %x", b[:16], b[16:18], b[18:19]))
		if n > testcluster.HeaderLength {
			words = append(words, hex.EncodeToString(b[testcluster.HeaderLength:n]))
		}
		b = b[n:]
	}
	if len(b) > 0 {
		words = append(words, hex.EncodeToString(b))
	}
	return strings.Join(words, " ")
}

// parse reads what String writes. Hexadecimal digits may be set apart by blanks, "ff*16" is sixteen
// times ff, and text in double quotes stands for its bytes.
func parse(name, text string) (scenario, error) {
	s := scenario{name: name}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if about, ok := strings.CutPrefix(line, "#"); ok {
			s.about = append(s.about, strings.TrimSpace(about))
			continue
		}
		if line == "" {
			continue
		}
		step, err := parseStep(line)
		if err != nil {
			return s, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		s.steps = append(s.steps, step)
	}
	return s, nil
}

func parseStep(line string) (s step, err error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return s, fmt.Errorf("%q: want a connection and a verb", line)
	}
	s.on, s.verb = words[0], verb(words[1])
	rest := words[2:]
	switch s.verb {
	case mute, shut, reset, closing, up:
		if len(rest) > 0 {
			return s, fmt.Errorf("%s takes nothing", s.verb)
		}
		return s, nil
	case send:
		_, payload, _ := strings.Cut(line, string(send))
		s.times = 1
		first, counted, _ := strings.Cut(strings.TrimSpace(payload), " ")
		if count, ok := strings.CutSuffix(first, "x"); ok {
			if n, err := strconv.Atoi(count); err == nil {
				s.times, payload = n, counted
			}
		}
		s.bytes, err = parseBytes(payload)
		return s, err
	}
	if len(rest) == 2 && (s.verb == routed || s.verb == unrouted) {
		s.where, rest = rest[1], rest[:1]
	}
	if len(rest) != 1 {
		return s, fmt.Errorf("%s takes one word", s.verb)
	}
	word := rest[0]
	switch s.verb {
	case dial, connect, accept:
		s.to = word
		if !slices.Contains(services, word) && !validAttacker(word) {
			return s, fmt.Errorf("there is no speaker %q", word)
		}
	case await:
		var ok bool
		if s.kind, ok = awaited[word]; !ok {
			return s, fmt.Errorf("no message is called %q", word)
		}
	case pause:
		s.pause, err = time.ParseDuration(word)
	case told:
		_, err = fmt.Sscanf(word, "%d/%d", &s.code[0], &s.code[1])
	case routed, unrouted:
		s.prefix, err = netip.ParsePrefix(word)
	default:
		err = fmt.Errorf("no verb %q", s.verb)
	}
	return s, err
}

func parseBytes(text string) (out []byte, err error) {
	out = []byte{}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		if text[0] == '"' {
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", text, err)
			}
			plain, _ := strconv.Unquote(quoted) // QuotedPrefix has seen that it is one
			out, text = append(out, plain...), text[len(quoted):]
			continue
		}
		word, rest, _ := strings.Cut(text, " ")
		text = rest
		word, count, repeated := strings.Cut(word, "*")
		n := 1
		if repeated {
			if n, err = strconv.Atoi(count); err != nil || n < 0 || n > 1<<16 {
				return nil, fmt.Errorf("%s*%s: want a count", word, count)
			}
		}
		b, err := hex.DecodeString(word)
		if err != nil {
			return nil, err
		}
		out = append(out, bytes.Repeat(b, n)...)
	}
	return out, nil
}

// kinds are those of attackers: with iBGP and eBGP, over IPv4 and IPv6.
var kinds = []string{"i4", "e4", "i6", "e6"}

// validAttacker says whether name is a kind and a number, as in "i4.1".
func validAttacker(name string) bool {
	kind, number, _ := strings.Cut(name, ".")
	n, err := strconv.Atoi(number)
	return slices.Contains(kinds, kind) && err == nil && n > 0 && n < 10
}

// attackers are the names of those who take part.
func (s scenario) attackers() (names []string) {
	for _, step := range s.steps {
		if validAttacker(step.to) && !slices.Contains(names, step.to) {
			names = append(names, step.to)
		}
	}
	return names
}
