package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// decoder reads a topology file by hand: what is not known, or known but not made of namespaces, is
// refused with its line and its node, all of it at once. Texts are taken as they are written: 1.50
// in an environment stays 1.50.
type decoder struct {
	errs    []error
	merging []*yaml.Node // what "<<" is being followed in
}

func (d *decoder) refuse(at *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf("line %d: %w", at.Line, fmt.Errorf(format, args...)))
}

func decodeTopology(text []byte) (*topology, error) {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := documents.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch err := documents.Decode(&second); {
	case err == nil:
		return nil, fmt.Errorf("line %d: a second document, of which containerlab reads nothing",
			second.Line)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	t, d := &topology{}, &decoder{}
	d.file(&first, t)
	return t, errors.Join(d.errs...)
}

func (d *decoder) file(n *yaml.Node, t *topology) {
	d.fields(n, "the file", func(key string, value *yaml.Node) bool {
		switch key {
		case "name":
			t.Name = d.text(value, "name")
			d.labName(value, t.Name)
		// containerlab's own network for its access to the nodes; we have another way in
		case "mgmt":
		case "topology":
			d.topology(value, t)
		default:
			return false
		}
		return true
	})
}

func (d *decoder) topology(n *yaml.Node, t *topology) {
	d.fields(n, "topology", func(key string, value *yaml.Node) bool {
		switch key {
		case "defaults":
			t.Defaults = d.node(value, "defaults")
		case "kinds":
			t.Kinds = d.kinds(value)
		case "nodes":
			t.Nodes = map[string]node{}
			d.fields(value, "nodes", func(name string, value *yaml.Node) bool {
				d.nodeName(value, name)
				t.Nodes[name] = d.node(value, "node "+name)
				return true
			})
		case "links":
			for _, item := range d.list(value, "links") {
				t.Links = append(t.Links, d.link(item))
			}
		default:
			return false
		}
		return true
	})
}

func (d *decoder) kinds(n *yaml.Node) map[string]node {
	kinds := map[string]node{}
	d.fields(n, "kinds", func(name string, value *yaml.Node) bool {
		where := "kind " + name
		if name != "linux" {
			d.refuse(value, "%s is not supported, only linux", where)
			return true
		}
		kinds[name] = d.node(value, where)
		if k := kinds[name].Kind; k != "" && k != name {
			d.refuse(value, "%s: kind %q means nothing here", where, k)
		}
		return true
	})
	return kinds
}

func (d *decoder) node(n *yaml.Node, where string) node {
	out := node{line: n.Line}
	d.fields(n, where, func(key string, value *yaml.Node) bool {
		what := where + ": " + key
		switch key {
		case "kind":
			if out.Kind = d.text(value, what); out.Kind != "" && out.Kind != "linux" &&
				!strings.HasPrefix(where, "kind ") {
				d.refuse(value, "%s %q is not supported, only linux", what, out.Kind)
			}
		case "image":
			out.Image = d.text(value, what)
		case "cmd":
			out.Cmd = d.text(value, what)
			d.command(value, what, out.Cmd)
		case "network-mode":
			if mode := d.text(value, what); mode != "" && mode != "none" {
				d.refuse(value, "%s %q is not supported, only none", what, mode)
			}
		case "binds":
			for _, item := range d.list(value, what) {
				out.Binds = append(out.Binds, d.bind(item, what))
			}
		case "exec":
			for _, item := range d.list(value, what) {
				line := d.text(item, what)
				out.Exec = append(out.Exec, line)
				d.program(item, what, d.command(item, what, line))
			}
		case "env":
			out.Env = d.env(value, what)
		default:
			return false
		}
		return true
	})
	return out
}

func (d *decoder) env(n *yaml.Node, what string) map[string]string {
	env := map[string]string{}
	d.fields(n, what, func(key string, value *yaml.Node) bool {
		if strings.HasPrefix(key, "__") {
			d.refuse(value, "%s: %s is not supported", what, key)
		}
		env[key] = d.text(value, what+": "+key)
		return true
	})
	return env
}

// bind reads source:/target. A target is cleaned as a container engine does it, so that none leads
// out of the node.
func (d *decoder) bind(n *yaml.Node, what string) bind {
	text := d.text(n, what)
	d.magic(n, what, text)
	parts := strings.Split(text, ":")
	if len(parts) != 2 || parts[0] == "" || !path.IsAbs(parts[1]) {
		d.refuse(n, "%s: %q is not supported, only source:/target", what, text)
		return bind{}
	}
	b := bind{source: parts[0], target: path.Clean(parts[1])}
	if b.source[0] == '~' {
		d.refuse(n, "%s: %q: ~ is not supported", what, text)
	}
	if b.target == "/" {
		d.refuse(n, "%s: %q would cover the whole node", what, text)
	}
	return b
}

// command returns the words of a line, or nil of one that it refuses.
func (d *decoder) command(n *yaml.Node, what, line string) []string {
	d.magic(n, what, line)
	words, err := splitWords(line)
	if err != nil {
		d.refuse(n, "%s: %q: %w", what, line, err)
		return nil
	}
	return append([]string{}, words...)
}

// program refuses a line that names no program: /usr/bin/env, which runs it here, would take it for
// its own, and containerlab for a program's name.
func (d *decoder) program(n *yaml.Node, what string, words []string) {
	switch {
	case words == nil: // refused already
	case len(words) == 0:
		d.refuse(n, "%s: a line without a command", what)
	case words[0] == "" || words[0][0] == '-' || strings.Contains(words[0], "="):
		d.refuse(n, "%s: %q is no command: variables belong into env", what, words[0])
	}
}

// magic refuses containerlab's words for its folder of a lab that is up: namespaces have none.
func (d *decoder) magic(n *yaml.Node, what, text string) {
	for _, word := range []string{"__clabDir__", "__clabNodeDir__"} {
		if strings.Contains(text, word) {
			d.refuse(n, "%s: %q: %s is not supported: there is no such folder", what, text, word)
		}
	}
}

func (d *decoder) link(n *yaml.Node) link {
	out := link{line: n.Line}
	d.fields(n, "link", func(key string, value *yaml.Node) bool {
		if key != "endpoints" {
			return false
		}
		for _, item := range d.list(value, "link: endpoints") {
			if text := d.text(item, "link: endpoint"); text != "" {
				out.ends = append(out.ends, d.end(item, text))
			}
		}
		return true
	})
	if len(out.ends) != 2 {
		d.refuse(n, "link: want two endpoints, node:interface, in brackets")
	}
	return out
}

// special are the words that are no node in front of an interface, for containerlab.
var special = map[string]string{
	"host": "this machine", "mgmt-net": "the management network",
	"macvlan": "a network of this machine",
}

var deviceName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]*$`)

func (d *decoder) end(n *yaml.Node, text string) end {
	node, device, _ := strings.Cut(text, ":")
	switch to, is := special[strings.ToLower(strings.TrimSpace(node))]; {
	case is:
		d.refuse(n, "link: %q: a link to %s is not supported, only between nodes", text, to)
	case !deviceName.MatchString(device):
		d.refuse(n, "link: %q is not node:interface", text)
	case len(device) > 15:
		d.refuse(n, "link: %q: an interface's name has 15 characters at most, not %d",
			text, len(device))
	case device == "lo":
		d.refuse(n, "link: %q: a node has its lo already", text)
	}
	return end{node, device}
}

var name = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// labName checks a lab's name: it is part of the namespaces' names, and with a node's name of
// files.
func (d *decoder) labName(n *yaml.Node, lab string) {
	switch {
	case !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(lab) || strings.Trim(lab, "-") == "":
		d.refuse(n, "name %q: want lower case letters, digits and dashes", lab)
	case len(lab) > 20:
		d.refuse(n, "name %q: 20 characters at most, not %d", lab, len(lab))
	}
}

func (d *decoder) nodeName(n *yaml.Node, node string) {
	switch {
	case !name.MatchString(node):
		d.refuse(n, "node %s: want lower case letters, digits and dashes in a name, a letter first",
			node)
	case len(node) > 63:
		d.refuse(n, "node %s: a host name has 63 characters at most, not %d", node, len(node))
	}
}

// fields calls read for each field of a mapping and refuses what read does not know. Nothing is an
// empty mapping.
func (d *decoder) fields(n *yaml.Node, where string, read func(key string, value *yaml.Node) bool) {
	seen := map[string]bool{}
	for _, f := range d.pairs(n, where) {
		if seen[f.key.Value] {
			d.refuse(f.key, "%s: %q is there twice", where, f.key.Value)
			continue
		}
		seen[f.key.Value] = true
		if !read(f.key.Value, f.value) {
			d.refuse(f.key, "%s: unknown field %q", where, f.key.Value)
		}
	}
}

type field struct{ key, value *yaml.Node }

// pairs are the fields of a mapping in their order, behind them what "<<" merges in.
func (d *decoder) pairs(n *yaml.Node, where string) []field {
	n = target(n)
	switch {
	case n.Kind == 0 || n.Tag == "!!null":
		return nil
	case n.Kind != yaml.MappingNode:
		d.refuse(n, "%s: want fields with values", where)
		return nil
	}
	if slices.Contains(d.merging, n) {
		d.refuse(n, "%s: << leads back to where it is", where)
		return nil
	}
	d.merging = append(d.merging, n)
	defer func() { d.merging = d.merging[:len(d.merging)-1] }()
	var own, merged []field
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			own = append(own, field{key, value})
			continue
		}
		from := []*yaml.Node{value}
		if t := target(value); t.Kind == yaml.SequenceNode {
			from = t.Content
		}
		for _, m := range from {
			merged = append(merged, d.pairs(m, where)...)
		}
	}
	have := map[string]bool{}
	for _, f := range own {
		have[f.key.Value] = true
	}
	for _, f := range merged {
		if !have[f.key.Value] {
			have[f.key.Value] = true
			own = append(own, f)
		}
	}
	return own
}

func (d *decoder) list(n *yaml.Node, what string) []*yaml.Node {
	n = target(n)
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	if n.Tag != "!!null" {
		d.refuse(n, "%s: want a list", what)
	}
	return nil
}

func (d *decoder) text(n *yaml.Node, what string) string {
	n = target(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.refuse(n, "%s: want a text", what)
	case n.Tag == "!!binary":
		d.refuse(n, "%s: !!binary is not supported", what)
	case n.Tag != "!!null":
		return n.Value
	}
	return ""
}

// target is what an alias or a document stands for.
func target(n *yaml.Node) *yaml.Node {
	for {
		switch {
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
			n = n.Content[0]
		default:
			return n
		}
	}
}
