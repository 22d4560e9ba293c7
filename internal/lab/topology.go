package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// topology is what we know of a containerlab file (containerlab.dev/manual/topo-def-file). A field
// that is not here is refused: a lab that silently lacked a part would pass or fail for the wrong
// reason.
type topology struct {
	Name     string
	Defaults node
	Kinds    map[string]node
	Nodes    map[string]node
	Links    []link

	dir string // of the file; binds are relative to it
}

type node struct {
	Kind string // linux only
	// of the container; in namespaces: this machine's files with the packages of labImage
	Image string
	Cmd   string
	Binds []bind
	Exec  []string // one after the other, when the links are there; all nodes at the same time
	Env   map[string]string

	line int
}

type bind struct{ source, target string }

type link struct {
	ends []end // two
	line int
}

// end is one side of a link.
type end struct{ node, device string }

func (e end) String() string { return e.node + ":" + e.device }

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

func readTopology(file string, env lookup) (*topology, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := parseTopology(text, env)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", file, err)
	}
	t.dir, err = filepath.Abs(filepath.Dir(file))
	return t, err
}

func parseTopology(text []byte, env lookup) (*topology, error) {
	if before, _, found := strings.Cut(string(text), "{{"); found {
		return nil, fmt.Errorf(
			"line %d: containerlab takes {{ for a template, which is not supported",
			strings.Count(before, "\n")+1)
	}
	text, err := expand(text, env)
	if err != nil {
		return nil, err
	}
	t, err := decodeTopology(text)
	if err != nil {
		return nil, err
	}
	for name, n := range t.Nodes {
		t.Nodes[name] = n.over(t.Kinds[n.kind(t)]).over(t.Defaults).named(name, t.Name)
	}
	return t, t.check()
}

// agents are the nodes that start an agent.
func (t *topology) agents() []string {
	return slices.DeleteFunc(t.names(), func(name string) bool {
		return !slices.ContainsFunc(t.Nodes[name].Exec, func(line string) bool {
			return strings.HasPrefix(line, "start-agent")
		})
	})
}

func (n node) kind(t *topology) string {
	if n.Kind == "" {
		return t.Defaults.Kind
	}
	return n.Kind
}

// over fills what n does not say from what holds for its kind or for all. Lists are joined, the
// general part first, and maps merged.
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

// named puts in what containerlab's words stand for: in lines of exec, and in binds on this
// machine's side.
func (n node) named(name, lab string) node {
	n.Binds = arrange(n.Binds)
	words := strings.NewReplacer("__clabNodeName__", name, "__clabLabName__", "clab-"+lab)
	for i := range n.Binds {
		n.Binds[i].source = words.Replace(n.Binds[i].source)
	}
	for i := range n.Exec {
		n.Exec[i] = words.Replace(n.Exec[i])
	}
	return n
}

// arrange leaves the last bind to each target, and puts what is inside of another one behind it.
func arrange(binds []bind) []bind {
	last := map[string]bind{}
	for _, b := range binds {
		last[b.target] = b
	}
	return slices.SortedFunc(maps.Values(last), func(a, b bind) int {
		return strings.Compare(a.target, b.target)
	})
}

// check finds what no line alone shows.
func (t *topology) check() error {
	var errs []error
	refuse := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("line %d: %w", line, fmt.Errorf(format, args...)))
	}
	if t.Name == "" {
		errs = append(errs, errors.New("the file has no name"))
	}
	if len(t.Nodes) == 0 {
		errs = append(errs, errors.New("the file has no nodes"))
	}
	for _, name := range t.names() {
		if n := t.Nodes[name]; n.Kind == "" {
			refuse(n.line, "node %s has no kind, want linux", name)
		}
	}
	seen := map[end]bool{}
	for _, l := range t.Links {
		for _, e := range l.ends {
			if _, known := t.Nodes[e.node]; !known {
				refuse(l.line, "link: %q: there is no node %q", e, e.node)
			}
			if seen[e] {
				refuse(l.line, "link: %q has a link already", e)
			}
			seen[e] = true
		}
	}
	return errors.Join(errs...)
}

// names are the nodes' names in order.
func (t *topology) names() []string { return slices.Sorted(maps.Keys(t.Nodes)) }

// splitWords cuts a command line as containerlab does (github.com/google/shlex): at blanks and ends
// of lines outside quotes; in double quotes a backslash takes the next character as it is. It runs
// no shell, so what only a shell understands is refused, and so are comments, which shlex leaves
// out.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	inWord, escaped, quote := false, false, rune(0)
	for _, c := range line {
		switch {
		case escaped:
			escaped = false
			word.WriteRune(c)
		case quote == '"' && c == '\\':
			escaped = true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case strings.ContainsRune(" \t\r\n", c):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		case c == '#' && !inWord:
			return nil, errors.New(
				"# begins a comment up to the end of the line: quote it, or take it out")
		case strings.ContainsRune(`|&;<>$()\`+"`", c):
			return nil, fmt.Errorf(
				"no shell runs this, so %q does not do what it says: use sh -c '…'", c)
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
