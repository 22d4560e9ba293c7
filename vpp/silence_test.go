package vpp

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A process that did not run for the reply time-out has asked VPP for nothing. It hears VPP when it
// runs again.
func TestSilenceOfOurOwn(t *testing.T) {
	for _, tc := range []struct {
		answer, want time.Duration // after the beginning
		err          error
	}{
		{9 * time.Second, 9 * time.Second, nil},
		{10900 * time.Millisecond, 10900 * time.Millisecond, nil},
		{12 * time.Second, 11 * time.Second, os.ErrDeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			began := time.Now()
			defer time.AfterFunc(tc.answer, func() { far.Write([]byte{1}) }).Stop()
			n, err := silence{newConn(near, 10*time.Second)}.Read(make([]byte, 1))
			if took := time.Since(began); took != tc.want || !errors.Is(err, tc.err) ||
				(n == 1) != (tc.err == nil) {
				t.Errorf("answer after %s: %d bytes after %s, %v", tc.answer, n, took, err)
			}
		})
	}
}
