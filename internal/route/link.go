package route

import (
	"fmt"
	"strings"
)

// Link wants an interface that we make, under a name of ours. A data plane marks it with the name
// and the digest of its settings; another digest makes it anew.
type Link struct {
	Name string
	Kind LinkKind
	MAC  string // as net.HardwareAddr prints it; "": the data plane's choice

	// Parent and VLAN are of a SubInterface: it has the frames of one with this tag.
	Parent string
	VLAN   uint16
}

// MaxLinkName is how many bytes its name can have. The mark must fit into VPP's 63.
const MaxLinkName = 47

// LinkKind is what an interface is.
type LinkKind string

const (
	Loopback     LinkKind = "loopback"
	SubInterface LinkKind = "sub-interface"
)

// LinkKey identifies the interface that we make under a name.
func LinkKey(name string) ObjectKey { return ObjectKey{Kind: MadeLink, Interface: name} }

func (l Link) Key() ObjectKey { return LinkKey(l.Name) }

func (l Link) Digest() uint64 {
	settings := []string{string(l.Kind), l.MAC}
	if l.Kind == SubInterface {
		settings = append(settings, l.Parent, fmt.Sprint(l.VLAN))
	}
	return digestOf(strings.Join(settings, "\n"))
}

// Needs: the parent may be one that we make.
func (l Link) Needs() []ObjectKey {
	if l.Parent == "" {
		return nil
	}
	return []ObjectKey{LinkKey(l.Parent)}
}

func (l Link) Marked() bool { return true }

// FoundLink is an interface that is there under a name: with our mark, or another program's.
type FoundLink struct {
	Name string
	Mark uint64 // the digest of the Link it was made for; 0: it is not ours
}

func (f FoundLink) Key() ObjectKey     { return LinkKey(f.Name) }
func (f FoundLink) Digest() uint64     { return max(f.Mark, 1) }
func (f FoundLink) Needs() []ObjectKey { return nil }
func (f FoundLink) Marked() bool       { return f.Mark != 0 }
