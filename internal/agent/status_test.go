package agent

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestPortTakenNamesTheOtherSpeaker: two speakers on one node are the first mistake that one makes when taking a node over.
func TestPortTakenNamesTheOtherSpeaker(t *testing.T) {
	taken := fmt.Errorf("gobgp: start: %w", &net.OpError{Op: "listen", Err: syscall.EADDRINUSE})
	c := (&Agent{setError: errors.Join(taken)}).speakerCondition()
	if c.OK || !strings.Contains(c.Message, "address already in use; another BGP speaker has the port") {
		t.Errorf("condition %+v", c)
	}
	c = (&Agent{setError: errors.New("gobgp: no policy")}).speakerCondition()
	if c.OK || c.Message != "gobgp: no policy" {
		t.Errorf("another error: %+v", c)
	}
}
