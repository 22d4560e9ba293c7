package gobgp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"vpp-route-agent/bgp"
)

// TestStartOnATakenPort: whoever asks can tell that another BGP speaker is there, and BGP starts as
// soon as that is gone.
func TestStartOnATakenPort(t *testing.T) {
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s, err := New(Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	plan := bgp.Plan{Speaker: bgp.Speaker{
		AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"),
		ListenPort:      uint16(other.Addr().(*net.TCPAddr).Port),
		ListenAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
	}}
	if err := s.Set(ctx, plan); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("with the port taken: %v", err)
	} else {
		t.Log(err)
	}
	other.Close()
	if err := s.Set(ctx, plan); err != nil {
		t.Errorf("with the port free: %v", err)
	}
}
