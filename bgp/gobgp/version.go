package gobgp

import (
	"fmt"

	"github.com/osrg/gobgp/v3/pkg/patchlevel"

	patches "vpp-route-agent/third_party/gobgp"
)

// Version names the GoBGP of this binary: "v3.37.0 with 15 patches (7c0dd6f5d2b2)".
func Version() string {
	return fmt.Sprintf("%s with %d patches (%s)",
		patchlevel.Version, patchlevel.Patches, patchlevel.Digest)
}

// Outdated reports whether GoBGP has other patches than this commit: it was built without make, in
// a folder that an earlier commit filled.
func Outdated() bool { return patchlevel.Digest != patches.Digest() }
