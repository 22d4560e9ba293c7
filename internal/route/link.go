package route

import "strings"

// Link wants an interface that we make, under a name of ours. A data plane marks it with the name
// and the digest of its settings; another digest makes it anew.
type Link struct {
	Name string
	Kind LinkKind
	MAC  string // as net.HardwareAddr prints it; "": the data plane's choice
}

// MaxLinkName is how many bytes its name can have. The mark must fit into VPP's 63.
const MaxLinkName = 47

// LinkKind is what an interface is.
type LinkKind string

const (
	Loopback LinkKind = "loopback"
)

// LinkKey identifies the interface that we make under a name.
func LinkKey(name string) ObjectKey { return ObjectKey{Kind: MadeLink, Interface: name} }

func (l Link) Key() ObjectKey { return LinkKey(l.Name) }

func (l Link) Digest() uint64 {
	return digestOf(strings.Join([]string{string(l.Kind), l.MAC}, "\n"))
}

func (l Link) Needs() []ObjectKey { return nil }
func (l Link) Marked() bool       { return true }

// FoundLink is an interface that is there under a name: with our mark, or another program's.
type FoundLink struct {
	Name string
	Mark uint64 // the digest of the Link it was made for; 0: it is not ours
}

func (f FoundLink) Key() ObjectKey     { return LinkKey(f.Name) }
func (f FoundLink) Digest() uint64     { return max(f.Mark, 1) }
func (f FoundLink) Needs() []ObjectKey { return nil }
func (f FoundLink) Marked() bool       { return f.Mark != 0 }
