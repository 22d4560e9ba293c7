package grpc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/yamldoc"
)

// Policy says who may write what. Whoever has no entry may only read.
type Policy struct {
	Clients []Client `json:"clients"`
}

// Client is an entry of a policy: who it is about, and what they may write. One of UID, Certificate
// and Anonymous says who.
type Client struct {
	// UID is the user on the other end of the unix socket.
	UID *uint32 `json:"uid,omitempty"`
	// Certificate is the common name, or a DNS name, of a client's certificate.
	Certificate string `json:"certificate,omitempty"`
	// Anonymous are all that call over TCP in plain text.
	Anonymous bool `json:"anonymous,omitempty"`

	// Source is theirs, as grpc/SOURCE; "": it is grpc.
	Source string `json:"source,omitempty"`
	// Models, Tables and Interfaces are those that they may write: "vpp.route", "7" or "10-19",
	// "loop7" or "tenant-*". Empty: all.
	Models     []string `json:"models,omitempty"`
	Tables     []string `json:"tables,omitempty"`
	Interfaces []string `json:"interfaces,omitempty"`
	// SocketDirectories are those in which, and below which, sockets of memifs may be. Empty: all.
	SocketDirectories []string `json:"socket_directories,omitempty"`
	// Namespaces are those of Linux that interfaces may be in: names, paths, or OwnNamespace.
	// Empty: all. They need Interfaces: routes and neighbours name an interface alone.
	Namespaces []string `json:"namespaces,omitempty"`
}

// OwnNamespace is the network namespace of the agent. One that is called so is given by its path.
const OwnNamespace = "own"

// DefaultPolicy lets root and the agent's own user write everything, and where TCP without
// certificates is allowed whoever calls.
func DefaultPolicy(plaintext bool) Policy {
	root, own := uint32(0), uint32(os.Geteuid())
	p := Policy{Clients: []Client{{UID: &root}, {UID: &own}}}
	if plaintext {
		p.Clients = append(p.Clients, Client{Anonymous: true})
	}
	return p
}

// ReadPolicy reads a policy in YAML. An error is one sentence that names the entry.
func ReadPolicy(file string) (p Policy, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	asJSON, err := yamldoc.One(text)
	if err == nil {
		err = yaml.UnmarshalStrict(asJSON, &p)
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", file, err)
	}
	for i, c := range p.Clients {
		if err := c.check(); err != nil {
			return p, fmt.Errorf("%s: entry %d of clients: %w", file, i+1, err)
		}
	}
	return p, nil
}

func (c *Client) check() error {
	who := 0
	for _, given := range []bool{c.UID != nil, c.Certificate != "", c.Anonymous} {
		if given {
			who++
		}
	}
	if who != 1 {
		return errors.New("one of uid, certificate and anonymous must say who it is about")
	}
	if c.Source != "" && !isName(c.Source) {
		return fmt.Errorf("source %q is no name", c.Source)
	}
	for _, name := range c.Models {
		known := func(m *external.Model) bool { return m.Name() == name }
		if !slices.ContainsFunc(external.Models(), known) {
			return fmt.Errorf("there is no model %q", name)
		}
	}
	for _, text := range c.Tables {
		if _, _, err := tables(text); err != nil {
			return err
		}
	}
	for _, pattern := range c.Interfaces {
		if name, _ := strings.CutSuffix(pattern, "*"); strings.Contains(name, "*") {
			return fmt.Errorf("interfaces %q: a * is at the end alone", pattern)
		}
	}
	for _, dir := range c.SocketDirectories {
		if !path.IsAbs(dir) || path.Clean(dir) != dir {
			return fmt.Errorf("socket_directories %q is no absolute path in its plain form", dir)
		}
	}
	if len(c.Namespaces) > 0 && len(c.Interfaces) == 0 {
		return errors.New("namespaces need interfaces beside them")
	}
	return nil
}

// tables reads "7" or "10-19".
func tables(text string) (first, last uint64, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	if err1 != nil || err2 != nil || first > last {
		return 0, 0, fmt.Errorf("tables %q are neither a number nor a range such as 10-19", text)
	}
	return first, last, nil
}

// isName reports whether a client can have this name.
func isName(name string) bool {
	odd := func(r rune) bool { return r == '/' || r == ',' || !unicode.IsPrint(r) }
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, odd)
}

// source is theirs, within which a call may name another.
func (c *Client) source(within string) string {
	name := Name
	for _, part := range []string{c.Source, within} {
		if part != "" && part != Name {
			name += "/" + part
		}
	}
	return name
}

// givesAway reports whether a source is that of an entry other than c, or within it.
func (p Policy) givesAway(source string, c *Client) bool {
	return slices.ContainsFunc(p.Clients, func(other Client) bool {
		own := other.source("")
		return own != Name && own != c.source("") && external.IsOf(source, own)
	})
}

// limit refuses the items that they may not write.
func (c *Client) limit(items []external.Item) {
	for i := range items {
		if items[i].Problem != (external.Problem{}) {
			continue
		}
		if why := c.refuses(items[i]); why != "" {
			items[i].Problem = external.Problem{State: external.Failed, Detail: why}
		}
	}
}

// refuses says why they may not write an item, which deleting it is as well; "": they may.
func (c *Client) refuses(item external.Item) string {
	if len(c.Models)+len(c.Tables)+len(c.Interfaces)+len(c.SocketDirectories)+
		len(c.Namespaces) == 0 {
		return ""
	}
	if item.Message == nil {
		return "the policy does not let this client write what the agent cannot read"
	}
	model := external.ModelOf(item.Message).Name()
	if len(c.Models) > 0 && !slices.Contains(c.Models, model) {
		return "the policy does not let this client write model " + model
	}
	for _, id := range external.TablesOf(item.Message) {
		among := func(text string) bool {
			first, last, err := tables(text)
			return err == nil && first <= uint64(id) && uint64(id) <= last
		}
		if len(c.Tables) > 0 && !slices.ContainsFunc(c.Tables, among) {
			return fmt.Sprintf("the policy does not let this client write table %d", id)
		}
	}
	for _, name := range external.InterfacesOf(item.Message) {
		among := func(pattern string) bool {
			prefix, isPrefix := strings.CutSuffix(pattern, "*")
			return pattern == name || isPrefix && strings.HasPrefix(name, prefix)
		}
		if len(c.Interfaces) > 0 && !slices.ContainsFunc(c.Interfaces, among) {
			return "the policy does not let this client write interface " + name
		}
	}
	socket := external.SocketOf(item.Message)
	holds := func(dir string) bool {
		return strings.HasPrefix(socket, strings.TrimSuffix(dir, "/")+"/")
	}
	if socket != "" && len(c.SocketDirectories) > 0 &&
		!slices.ContainsFunc(c.SocketDirectories, holds) {
		return "the policy does not let this client use socket " + socket
	}
	if i, ok := item.Message.(*linux.Interface); ok && len(c.Namespaces) > 0 {
		in := external.NamespaceOf(i)
		if !slices.ContainsFunc(c.Namespaces, func(name string) bool {
			if name == OwnNamespace {
				return in == ""
			}
			return in == external.NamespacePath(name)
		}) {
			return "the policy does not let this client write namespace " +
				cmp.Or(in, OwnNamespace)
		}
	}
	return ""
}
