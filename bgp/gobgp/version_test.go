package gobgp

import "testing"

// What is tested is what make builds.
func TestGoBGPHasThePatchesOfThisCommit(t *testing.T) {
	if Outdated() {
		t.Fatalf("GoBGP %s has other patches than third_party/gobgp: run make", Version())
	}
}
