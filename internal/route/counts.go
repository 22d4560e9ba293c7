package route

// MaxLookups is up to how many routes a data plane looks up one by one to tell what it counts for
// them. It lists all where there are more, and may forward nothing meanwhile.
const MaxLookups = 4096

// Counts are what a data plane has forwarded by something: an entry, a next hop, an interface.
type Counts struct{ Packets, Bytes uint64 }

// Add adds other counts.
func (c *Counts) Add(more Counts) {
	c.Packets, c.Bytes = c.Packets+more.Packets, c.Bytes+more.Bytes
}

// TunnelCounts are what came in by a tunnel, and what went out.
type TunnelCounts struct{ In, Out Counts }

// HopCounts are what a data plane has sent to a next hop, for whatever prefix.
type HopCounts struct {
	Path Path // its next hop and interface alone, as those of routes
	Counts
}
