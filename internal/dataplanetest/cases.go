package dataplanetest

import (
	"testing"
)

// testCase is one promise of a data plane.
type testCase struct {
	name  string
	needs Feature // "" for what every data plane has
	run   func(t *testing.T, b *bench)
}

var cases = []testCase{}

// bench is the data plane of one case with the suite's short words for it.
type bench struct {
	*Setup
}

func newBench(t *testing.T, s *Setup) *bench { return &bench{s} }
