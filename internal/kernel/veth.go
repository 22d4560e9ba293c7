package kernel

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"vpp-route-agent/internal/route"
)

// An interface that we make has a mark as its alias: the digest of the settings that it was made
// with. It is made under another name and gets its own when it has the mark, so that no unmarked
// one is left when the process ends in between.

const markPrefix = "vra:"

// unfinished is the digest of an end whose settings are still to come.
const unfinished = 1

func aliasFor(digest uint64) string {
	return markPrefix + base64.RawURLEncoding.EncodeToString(
		binary.BigEndian.AppendUint64(nil, digest))
}

// markOf returns the digest that an interface of ours has; 0: it is not ours.
func markOf(link netlink.Link) uint64 {
	text, ok := strings.CutPrefix(link.Attrs().Alias, markPrefix)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(raw)
}

// readMade returns what is there under the name of an interface that we make.
func readMade(d *Dataplane, k route.ObjectKey) (route.Object, error) {
	link, err := d.findLink(k.Interface)
	if errors.Is(err, route.ErrNoLink) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, ok := tunnelKind(k.Interface); ok {
		return readTunnel(d, link, k.Interface)
	}
	return route.FoundLink{Name: k.Interface, Mark: markOf(link)}, nil
}

// removeMade deletes an interface of ours; one of a pair takes the other along.
func removeMade(d *Dataplane, k route.ObjectKey) error {
	link, err := d.findLink(k.Interface)
	if errors.Is(err, route.ErrNoLink) || err == nil && markOf(link) == 0 {
		return nil
	}
	_, isTunnel := tunnelKind(k.Interface)
	switch {
	case err != nil:
	case isTunnel:
		err = removeTunnel(d, link)
	default:
		err = d.links.LinkDel(link)
	}
	return wrap(err, "delete interface %s", k.Interface)
}

// putMade makes tunnel devices. All else that we make is put by Namespaces.
func putMade(d *Dataplane, o route.Object) error {
	if l, ok := o.(route.Link); ok && (l.Kind == route.IPIPTunnel || l.Kind == route.VXLANTunnel) {
		return wrap(putTunnel(d, l), "make interface %s", l.Name)
	}
	return fmt.Errorf("%s: it cannot be made here", o.Key())
}

// putVethEnd makes a pair, or sets one end of it. d and far are where the end and its peer are. The
// end that is put second finds the pair, unless another program has moved or renamed an end.
func putVethEnd(d, far *Dataplane, v route.VethEnd) error {
	near, err := ourLink(d, v.Name)
	if err != nil {
		return err
	}
	peer, err := ourLink(far, v.Peer)
	if err != nil {
		return err
	}
	if !isPair(near, peer) {
		if near, err = makePair(d, far, v, near, peer); err != nil {
			return err
		}
	}
	if mac, err := net.ParseMAC(v.MAC); err == nil {
		if err := d.links.LinkSetHardwareAddr(near, mac); err != nil {
			return err
		}
	}
	mtu := int(v.MTU)
	if mtu == 0 {
		mtu = 1500
	}
	if err := d.links.LinkSetMTU(near, mtu); err != nil {
		return err
	}
	return d.links.LinkSetAlias(near, aliasFor(v.Digest()))
}

// ourLink returns the interface of that name, nil if there is none, and an error if it is another
// program's.
func ourLink(d *Dataplane, name string) (netlink.Link, error) {
	link, err := d.findLink(name)
	switch {
	case errors.Is(err, route.ErrNoLink):
		return nil, nil
	case err != nil:
		return nil, err
	case markOf(link) == 0:
		return nil, fmt.Errorf("another program has made interface %s", name)
	}
	return link, nil
}

// isPair reports whether these are the two ends of one pair.
func isPair(a, b netlink.Link) bool {
	return a != nil && b != nil && a.Type() == "veth" && b.Type() == "veth" &&
		a.Attrs().ParentIndex == b.Attrs().Index && b.Attrs().ParentIndex == a.Attrs().Index
}

// makePair replaces what of ours is there, and returns the end at d.
func makePair(d, far *Dataplane, v route.VethEnd, near, peer netlink.Link) (netlink.Link, error) {
	names := [2]string{unmarkedName(v.Name), unmarkedName(v.Peer)}
	planes := [2]*Dataplane{d, far}
	for i, old := range []netlink.Link{near, peer} {
		left, _ := planes[i].links.LinkByName(names[i])
		for _, link := range []netlink.Link{old, left} {
			if link != nil {
				_ = planes[i].links.LinkDel(link) // its peer may have taken it along
			}
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = names[0]
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: names[1]}
	if far.namespace != d.namespace {
		ns, err := far.netns()
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		pair.PeerNamespace = netlink.NsFd(ns)
	}
	if err := d.links.LinkAdd(pair); err != nil {
		return nil, err
	}
	var made [2]netlink.Link
	for i, name := range []string{v.Name, v.Peer} {
		link, err := planes[i].links.LinkByName(names[i])
		if err == nil {
			err = planes[i].links.LinkSetAlias(link, aliasFor(unfinished))
		}
		if err == nil {
			_, device := route.SplitNamespace(name)
			err = planes[i].links.LinkSetName(link, device)
		}
		if err != nil {
			return nil, err
		}
		made[i] = link
	}
	return made[0], nil
}

// unmarkedName is the name of an interface before it has its mark.
func unmarkedName(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprintf("vra-%08x", h.Sum32())
}

// netns opens the namespace of d.
func (d *Dataplane) netns() (netns.NsHandle, error) {
	if d.namespace == "" {
		return netns.Get()
	}
	return netns.GetFromPath(d.namespace)
}
