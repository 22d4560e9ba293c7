package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// topology is what we know of a containerlab file (containerlab.dev/manual/topo-def-file). A field that is not here is refused: a lab
// that silently lacked a part would pass or fail for the wrong reason.
type topology struct {
	Name string `json:"name"`
	Mgmt any    `json:"mgmt"` // containerlab's own network for its access to the nodes; we have another way in

	Topology struct {
		Defaults node            `json:"defaults"`
		Kinds    map[string]node `json:"kinds"`
		Nodes    map[string]node `json:"nodes"`
		Links    []link          `json:"links"`
	} `json:"topology"`

	dir string // of the file; binds are relative to it
}

type node struct {
	Kind        string            `json:"kind"`         // linux only
	Image       string            `json:"image"`        // of the container; in namespaces: this machine's files with the packages of labImage
	NetworkMode string            `json:"network-mode"` // none, or containerlab's default, which is a further interface that we do not make
	Cmd         string            `json:"cmd"`
	Binds       []string          `json:"binds"` // source:target
	Exec        []string          `json:"exec"`  // one after the other, when the links are there; all nodes at the same time
	Env         map[string]string `json:"env"`
}

type link struct {
	Endpoints []string `json:"endpoints"` // two of node:interface
}

// end is one side of a link.
type end struct{ node, device string }

var (
	nodeName   = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	deviceName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,14}$`)
)

// find returns the one topology file of a lab's folder.
func find(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.clab.yml"))
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("%s has %d files *.clab.yml, want one", dir, len(files))
	}
	return files[0], nil
}

func readTopology(file string, getenv func(string) string) (*topology, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := parseTopology(text, getenv)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t.dir, err = filepath.Abs(filepath.Dir(file))
	return t, err
}

func parseTopology(text []byte, getenv func(string) string) (*topology, error) {
	t := &topology{}
	if err := yaml.UnmarshalStrict(expand(text, getenv), t); err != nil {
		return nil, fmt.Errorf("not supported: %w", err)
	}
	for name, n := range t.Topology.Nodes {
		t.Topology.Nodes[name] = n.over(t.Topology.Kinds[n.kind(t)]).over(t.Topology.Defaults)
	}
	return t, t.check()
}

var variable = regexp.MustCompile(`\$\{(\w+)(?::?=([^}]*))?\}`)

// expand puts environment variables in, as containerlab does: ${NAME} and ${NAME:=default}.
func expand(text []byte, getenv func(string) string) []byte {
	return variable.ReplaceAllFunc(text, func(match []byte) []byte {
		m := variable.FindSubmatch(match)
		if v := getenv(string(m[1])); v != "" {
			return []byte(v)
		}
		return m[2]
	})
}

func (n node) kind(t *topology) string {
	if n.Kind == "" {
		return t.Topology.Defaults.Kind
	}
	return n.Kind
}

// over fills what n does not say from what holds for its kind or for all. Lists are joined, the general part first, and maps merged.
func (n node) over(general node) node {
	if n.Kind == "" {
		n.Kind = general.Kind
	}
	if n.Image == "" {
		n.Image = general.Image
	}
	if n.Cmd == "" {
		n.Cmd = general.Cmd
	}
	if n.NetworkMode == "" {
		n.NetworkMode = general.NetworkMode
	}
	n.Binds = append(slices.Clone(general.Binds), n.Binds...)
	n.Exec = append(slices.Clone(general.Exec), n.Exec...)
	env := maps.Clone(general.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, n.Env)
	n.Env = env
	return n
}

func (t *topology) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !regexp.MustCompile(`^[a-z0-9-]{1,20}$`).MatchString(t.Name) {
		wrong("name %q: want lower case letters, digits and dashes", t.Name)
	}
	if len(t.Topology.Nodes) == 0 {
		wrong("no nodes")
	}
	for _, name := range t.names() {
		if err := t.Topology.Nodes[name].check(name); err != nil {
			wrong("node %s: %w", name, err)
		}
	}
	seen := map[end]bool{}
	for _, l := range t.Topology.Links {
		ends, err := l.ends()
		if err != nil {
			wrong("%w", err)
		}
		for _, e := range ends {
			if _, known := t.Topology.Nodes[e.node]; !known {
				wrong("link %v: no node %q", l.Endpoints, e.node)
			}
			if seen[e] {
				wrong("link %v: %s:%s has a link already", l.Endpoints, e.node, e.device)
			}
			seen[e] = true
		}
	}
	return errors.Join(errs...)
}

func (n node) check(name string) error {
	if !nodeName.MatchString(name) {
		return errors.New("want lower case letters, digits and dashes in a name")
	}
	if n.Kind != "linux" {
		return fmt.Errorf("kind %q is not supported, only linux", n.Kind)
	}
	if n.NetworkMode != "" && n.NetworkMode != "none" {
		return fmt.Errorf("network-mode %q is not supported, only none", n.NetworkMode)
	}
	for _, b := range n.Binds {
		if parts := strings.Split(b, ":"); len(parts) != 2 || !filepath.IsAbs(parts[1]) {
			return fmt.Errorf("bind %q is not supported, only source:/target", b)
		}
	}
	for _, line := range append(slices.Clone(n.Exec), n.Cmd) {
		if _, err := splitWords(line); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
	}
	return nil
}

func (l link) ends() (ends []end, err error) {
	if len(l.Endpoints) != 2 {
		return nil, fmt.Errorf("link %v: want two endpoints", l.Endpoints)
	}
	for _, text := range l.Endpoints {
		node, device, _ := strings.Cut(text, ":")
		if !deviceName.MatchString(device) {
			return nil, fmt.Errorf("link %v: %q is not node:interface", l.Endpoints, text)
		}
		ends = append(ends, end{node, device})
	}
	return ends, nil
}

// names are the nodes' names in order.
func (t *topology) names() []string { return slices.Sorted(maps.Keys(t.Topology.Nodes)) }

// splitWords cuts a command line at spaces outside quotes, as containerlab does (github.com/google/shlex). It runs no shell, so what only
// a shell understands is refused.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		case strings.ContainsRune(`|&;<>$()\`+"`", c):
			return nil, fmt.Errorf("no shell runs this, so %q does not do what it says: use sh -c '…'", c)
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
