//go:build race

package agent

import "flag"

// With the race detector a walk takes five times as long: there are ten instead of a hundred. `make
// test` runs what is named TestWalk without the detector, too, a hundred times.
func init() {
	if err := flag.Set("rapid.checks", "10"); err != nil {
		panic(err)
	}
}
