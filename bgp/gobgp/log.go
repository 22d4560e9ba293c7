package gobgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// levelTrace is where GoBGP's own debug messages go: it formats every path for them.
const levelTrace = slog.LevelDebug - 4

// logger is GoBGP's logger on top of slog. GoBGP calls it inside its goroutines and under its locks: it must not call back, nor block.
//
// GoBGP's API does not tell why a session ended, only its log does; logger reads that out of it.
//
// Fatal and Panic do not end the process. The few places of v3.37 that call them all go on sanely when they return: a gRPC address that
// cannot be bound, an invalid policy set (also returned as an error), a message of an unknown type (passed over). The first such message
// ends Run with it.
type logger struct {
	log      *slog.Logger
	sessions *sessions
	fatal    chan<- error // of size 1
}

func (l *logger) Panic(msg string, f log.Fields) { l.Fatal(msg, f) }

func (l *logger) Fatal(msg string, f log.Fields) {
	l.write(slog.LevelError, msg, f)
	var text strings.Builder
	text.WriteString(msg)
	for _, k := range []string{"Err", "Error", "Data"} {
		if v, ok := f[k]; ok {
			fmt.Fprintf(&text, ": %v", v)
		}
	}
	select {
	case l.fatal <- fmt.Errorf("gobgp: %s", text.String()):
	default:
	}
}

func (l *logger) Error(msg string, f log.Fields) { l.trouble(slog.LevelError, msg, f) }

func (l *logger) Warn(msg string, f log.Fields) { l.trouble(slog.LevelWarn, msg, f) }

func (l *logger) trouble(level slog.Level, msg string, f log.Fields) {
	if l.note(msg, f) || routine(msg) {
		level = slog.LevelDebug
	}
	l.write(level, msg, f)
}

// Info is debug for us: GoBGP tells each step of its work that way. What an operator wants to know of it the Speaker says itself.
func (l *logger) Info(msg string, f log.Fields) {
	l.note(msg, f)
	level := slog.LevelDebug
	if msg == "Peer Up" || msg == "Peer Down" {
		level = slog.LevelInfo
	}
	l.write(level, msg, f)
}

func (l *logger) Debug(msg string, f log.Fields) { l.write(levelTrace, msg, f) }

// SetLevel is what the gobgp CLI asks for; the level is the agent's.
func (l *logger) SetLevel(log.LogLevel) {}

// GetLevel spares GoBGP the formatting of what nobody reads.
func (l *logger) GetLevel() log.LogLevel {
	if l.log.Enabled(context.Background(), levelTrace) {
		return log.DebugLevel
	}
	return log.InfoLevel
}

// routine reports warnings of GoBGP that are its everyday life: a withdrawal of what policy had rejected, a dial that crossed another.
func routine(msg string) bool {
	switch msg {
	case "No matching path for withdraw found, may be path was not installed into table",
		"Closed an accepted connection",
		"active conn is closed to avoid being blocked",
		"failed to close existing tcp connection",
		"Can't find the neighbor",
		"failed to set md5": // the peer shows it
		return true
	}
	return false
}

func (l *logger) write(level slog.Level, msg string, f log.Fields) {
	ctx := context.Background()
	if !l.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(f))
	for k, v := range f {
		switch k {
		case "Key":
			k = "peer"
			if f["Topic"] != "Peer" {
				k = "key"
			}
		case log.FieldFacility:
			continue
		case "Err", "Error", "error":
			k = "err"
		default:
			k = strings.ToLower(k)
		}
		attrs = append(attrs, slog.Any(k, v))
	}
	l.log.LogAttrs(ctx, level, "gobgp: "+strings.ToLower(msg[:1])+msg[1:], attrs...)
}

func peerOf(f log.Fields) (netip.Addr, bool) {
	key, _ := f["Key"].(string)
	addr, err := netip.ParseAddr(key)
	return addr.Unmap().WithZone(""), err == nil
}

// note keeps what a message says about why a session is not up, and reports whether it says again what was
// logged of the peer.
func (l *logger) note(msg string, f log.Fields) (again bool) {
	addr, ok := peerOf(f)
	if !ok {
		return false
	}
	switch msg {
	case "hold timer expired":
		l.sessions.holdTimer(addr)
	case "received notification":
		l.sessions.ending(addr, "peer sent "+notification(f))
	case "sent notification":
		if text := notification(f); text != "" {
			l.sessions.ending(addr, "we sent "+text)
		}
	case "Session will be reset due to malformed BGP Header", "Session will be reset due to malformed BGP message",
		"Session will be reset due to malformed BGP update message":
		l.sessions.refused(addr, firstOf(f, "Error", "error"))
	case "Some attributes were discarded", "the received Update message was treated as withdraw":
		return l.sessions.revised(addr, f["Error"], time.Now())
	case "a route cannot be sent, and is withdrawn at the peer":
		return l.sessions.unsendable(addr)
	case "sending panicked":
		l.sessions.sendingPanicked(addr, f["Error"])
	case "failed to set md5":
		if err, ok := f["Err"].(error); ok && !errors.Is(err, net.ErrClosed) { // listeners of before a restart stay in GoBGP's list
			l.sessions.keyRefused(addr, err)
		}
	case "Mismatched local address":
		l.sessions.problem(addr, fmt.Sprintf("the peer dialled %v, our end is %v", f["Addr"], f["Configured addr"]))
	case "prefix limit reached":
		l.sessions.limitReached(addr, time.Now())
	case "session panicked":
		l.sessions.panickedState(addr, f["Error"])
	case "The peer opened a new connection":
		l.sessions.ending(addr, "the peer opened a new connection")
	case "Peer Up":
		l.sessions.cameUp(addr)
	case "Peer Down":
		l.sessions.down(addr, downReason(fmt.Sprint(f["Reason"])))
	}
	return false
}

// notification reads a NOTIFICATION out of a log message: "CEASE: peer deconfigured".
func notification(f log.Fields) string {
	if e, ok := f["Data"].(*packet.MessageError); ok {
		return packet.NewNotificationErrorCode(e.TypeCode, e.SubTypeCode).String()
	}
	code, ok := f["Code"].(uint8)
	sub, ok2 := f["Subcode"].(uint8)
	if !ok || !ok2 {
		return ""
	}
	text := packet.NewNotificationErrorCode(code, sub).String()
	if c, ok := f["Communicated-Reason"].(string); ok && c != "" {
		text += fmt.Sprintf(" (%q)", c)
	}
	return text
}

func firstOf(f log.Fields, keys ...string) any {
	for _, k := range keys {
		if v, ok := f[k]; ok {
			return v
		}
	}
	return nil
}

// downReason says GoBGP's reason (fsmStateReason in its server/fsm.go) in words.
func downReason(r string) string {
	switch r {
	case "graceful-restart", "read-failed":
		return "the connection broke"
	case "write-failed":
		return "the connection broke while sending"
	case "dying":
		return "taken out of the configuration"
	}
	return r
}
