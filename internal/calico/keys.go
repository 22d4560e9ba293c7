package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is the kind of a key's value, for resources as in calicoctl.
type Kind string

const (
	KindNode               Kind = "Node"
	KindIPPool             Kind = "IPPool"
	KindBGPConfiguration   Kind = "BGPConfiguration"
	KindBGPPeer            Kind = "BGPPeer"
	KindBGPFilter          Kind = "BGPFilter"
	KindClusterInformation Kind = "ClusterInformation"
	KindFelixConfiguration Kind = "FelixConfiguration"
	KindWorkloadEndpoint   Kind = "WorkloadEndpoint"
	KindLiveMigration      Kind = "LiveMigration"

	KindBlock         Kind = "Block"         // IPAM's blocks of addresses
	KindBlockAffinity Kind = "BlockAffinity" // who may allocate from a block
	KindHandle        Kind = "IPAMHandle"    // which blocks hold the addresses of one owner
	KindIPAMConfig    Kind = "IPAMConfig"    // the one key of IPAM's settings

	KindPeerIP Kind = "peerip" // an address that a host publishes (PeerIP); not Calico's

	// of the Kubernetes API, and never in etcd
	KindService       Kind = "Service"
	KindEndpointSlice Kind = "EndpointSlice"
)

// plural returns the path segment of resources of kind k; "" if k is not a resource.
func (k Kind) plural() string {
	if slices.Contains(resourceKinds(), k) {
		return strings.ToLower(string(k)) + "s"
	}
	return ""
}

// resourceKinds are the kinds with a plural.
func resourceKinds() []Kind {
	return []Kind{
		KindNode, KindIPPool, KindBGPConfiguration, KindBGPPeer, KindBGPFilter,
		KindClusterInformation, KindFelixConfiguration, KindWorkloadEndpoint, KindLiveMigration,
	}
}

// Namespaced reports whether resources of kind k have a namespace.
func (k Kind) Namespaced() bool {
	switch k {
	case KindWorkloadEndpoint, KindLiveMigration, KindService, KindEndpointSlice:
		return true
	}
	return false
}

const (
	resourcePath  = "/calico/resources/v3/projectcalico.org/"
	ipamPath      = "/calico/ipam/v2/"
	blockPath     = ipamPath + "assignment/"
	hostPath      = ipamPath + "host/"
	virtualPath   = ipamPath + "virtual/"
	handlePath    = ipamPath + "handle/"
	ipamConfigKey = ipamPath + "config"
)

// Key identifies an item of Calico's datastore. Kind decides which fields are used.
type Key struct {
	Kind      Kind
	Namespace string       // of a kind that is Namespaced
	Name      string       // of a resource, a handle's id, or a host that publishes an address
	Owner     Owner        // of a BlockAffinity: never none
	CIDR      netip.Prefix // of a Block and a BlockAffinity, masked
	IPv6      bool         // of a peerip
}

// Resource names the item as calicoctl does where it knows the kind: "Node(edge-7)"; "" for the
// zero Key.
func (k Key) Resource() string {
	name := k.name()
	switch k.Kind {
	case "":
		return ""
	case KindBlock:
		name = k.CIDR.String()
	case KindBlockAffinity:
		name = k.Owner.Host + k.Owner.Virtual + " " + k.CIDR.String()
	}
	return fmt.Sprintf("%s(%s)", k.Kind, name)
}

// String returns the key as Calico writes it in etcd v3 (libcalico-go lib/backend/model).
func (k Key) String() string {
	switch k.Kind {
	case KindBlock:
		return blockPath + blockSegments(k.CIDR)
	case KindBlockAffinity:
		if k.Owner.Virtual != "" {
			return virtualPath + k.Owner.Virtual + "/" + blockSegments(k.CIDR)
		}
		return hostPath + k.Owner.Host + "/" + blockSegments(k.CIDR)
	case KindHandle:
		return handlePath + k.Name
	case KindIPAMConfig:
		return ipamConfigKey
	}
	if k.Kind.Namespaced() {
		return resourcePath + k.Kind.plural() + "/" + k.Namespace + "/" + k.Name
	}
	return resourcePath + k.Kind.plural() + "/" + k.Name
}

// blockSegments returns the tail of IPAM's keys: "ipv4/block/10.77.4.64-26".
func blockSegments(p netip.Prefix) string {
	return family(p.Addr()) + "/block/" + strings.Replace(p.String(), "/", "-", 1)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

// errOddKey is for a key that could change what a terminal shows, or that JSON cannot have.
var errOddKey = errors.New("key: has characters that no name has")

// IsPrintable reports whether a text is UTF-8 without control characters.
func IsPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsPrint(r)
	})
}

// ParseKey is the inverse of Key.String. It accepts any spelling of addresses, and host bits.
func ParseKey(key string) (Key, error) {
	if !IsPrintable(key) {
		return Key{}, errOddKey
	}
	if rest, ok := strings.CutPrefix(key, resourcePath); ok {
		return parseResourceKey(rest)
	}
	if rest, ok := strings.CutPrefix(key, blockPath); ok {
		cidr, err := parseBlockSegments(rest)
		return Key{Kind: KindBlock, CIDR: cidr}, err
	}
	if rest, ok := strings.CutPrefix(key, hostPath); ok {
		host, cidr, err := parseAffinityKey(rest)
		return Key{Kind: KindBlockAffinity, Owner: Owner{Host: host}, CIDR: cidr}, err
	}
	if rest, ok := strings.CutPrefix(key, virtualPath); ok {
		name, cidr, err := parseAffinityKey(rest)
		return Key{Kind: KindBlockAffinity, Owner: Owner{Virtual: name}, CIDR: cidr}, err
	}
	if id, ok := strings.CutPrefix(key, handlePath); ok && id != "" {
		return Key{Kind: KindHandle, Name: id}, nil
	}
	if key == ipamConfigKey {
		return Key{Kind: KindIPAMConfig}, nil
	}
	return Key{}, errors.New("key: not one of Calico's that we know")
}

func parseResourceKey(rest string) (Key, error) {
	plural, name, _ := strings.Cut(rest, "/")
	for _, kind := range resourceKinds() {
		if kind.plural() != plural {
			continue
		}
		k := Key{Kind: kind, Name: name}
		if kind.Namespaced() {
			k.Namespace, k.Name, _ = strings.Cut(name, "/")
			if k.Namespace == "" {
				return Key{}, errors.New("key: has no namespace")
			}
		}
		if k.Name == "" || strings.Contains(k.Name, "/") {
			return Key{}, fmt.Errorf("key: %q is not a name", k.Name)
		}
		return k, nil
	}
	return Key{}, fmt.Errorf("key: %q is not a kind of resource that we know", plural)
}

func parseAffinityKey(rest string) (owner string, cidr netip.Prefix, err error) {
	owner, rest, _ = strings.Cut(rest, "/")
	if owner == "" {
		return "", netip.Prefix{}, errors.New("key: has no owner")
	}
	cidr, err = parseBlockSegments(rest)
	return owner, cidr, err
}

func parseBlockSegments(s string) (netip.Prefix, error) {
	af, rest, _ := strings.Cut(s, "/")
	text, ok := strings.CutPrefix(rest, "block/")
	if !ok {
		return netip.Prefix{}, errors.New("key: has no block in it")
	}
	addr, bits, ok := strings.Cut(text, "-")
	if !ok {
		return netip.Prefix{}, fmt.Errorf("key: %q has no prefix length", text)
	}
	p, err := ParseBlock(addr + "/" + bits)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("key: %w", err)
	}
	if af != family(p.Addr()) {
		return netip.Prefix{}, fmt.Errorf("key: %s is not in %q", p, af)
	}
	return p, nil
}

// ParseBlock reads the CIDR of a block.
func ParseBlock(s string) (netip.Prefix, error) {
	p, err := ParseNetwork(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	// The valid blockSize of an IPPool (libcalico-go lib/clientv3/ippool.go). A typing error such
	// as 0.0.0.0-0 must not attract all traffic.
	if shortest := p.Addr().BitLen() - 12; p.Bits() < shortest {
		return netip.Prefix{}, fmt.Errorf("block %s is larger than Calico's largest, /%d", p,
			shortest)
	}
	return p, nil
}

// workloadPrefix begins the names of a node's WorkloadEndpoints: an identifier neither begins nor
// ends with a dash. Of edge it also begins those of edge-7, whose value decides.
func workloadPrefix(node string) string { return WorkloadEndpointName(node) + "-" }

// WorkloadEndpointName joins a WorkloadEndpoint's identifiers with "-" and doubles the dashes
// inside. For a pod they are node, "k8s", pod and endpoint (libcalico-go lib/names).
func WorkloadEndpointName(identifiers ...string) string {
	escaped := make([]string, len(identifiers))
	for i, id := range identifiers {
		escaped[i] = strings.ReplaceAll(id, "-", "--")
	}
	return strings.Join(escaped, "-")
}
