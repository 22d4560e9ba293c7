//go:build race

package agent

import "flag"

// With the race detector a walk takes five times as long. A tenth of the walks has it; `make test`
// takes all of them without.
func init() { _ = flag.Set("rapid.checks", "10") }
