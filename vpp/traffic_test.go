package vpp_test

import (
	"errors"
	"io/fs"
	"testing"

	"vpp-route-agent/vpp"
)

// A VPP without a statistics segment costs an error, and neither time nor a line on the standard
// output.
func TestForwardedWithoutStatisticsSegment(t *testing.T) {
	v := vpp.New(vpp.Config{StatsSocket: t.TempDir() + "/stats.sock"})
	if _, err := v.Forwarded(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
