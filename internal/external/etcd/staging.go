package etcd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vpp-route-agent/internal/external"
)

// A transaction of etcd has at most 128 operations. A larger change is a group: items under
// staging/GROUP/, and then a commit under the key staging/GROUP. From then on the items count as if
// they were under config/, until the commit is deleted. What is put into the group afterwards has
// no effect before a commit that fits.

const stagingDir = "staging/"

// group is a group of items: texts by key.
type group struct {
	commit    string            // "": there is none
	committed int64             // its revision
	staged    map[string]string // what is there
	active    map[string]string // what the last commit that fitted has put into force
	revision  int64             // of that commit
	bad       error             // why the present commit does not fit
}

// commit is the value of a group's key.
type commit struct {
	Items  int    `json:"items"`
	SHA256 string `json:"sha256"` // of digest; "": not compared
}

// stagingKey returns the group and, but for a commit, the key of the item.
func stagingKey(key string) (name, item string, ok bool) {
	rest, ok := strings.CutPrefix(key, stagingDir)
	name, item, _ = strings.Cut(rest, "/")
	return name, item, ok
}

// digest is the SHA-256 of all keys and values, in the order of keys, with a zero byte after each,
// in hexadecimal.
func digest(items map[string]string) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(items)) {
		fmt.Fprintf(h, "%s\x00%s\x00", key, items[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (g *group) fits() error {
	var c commit
	if err := json.Unmarshal([]byte(g.commit), &c); err != nil {
		return fmt.Errorf("it is no commit: %w", err)
	}
	if c.Items != len(g.staged) {
		return fmt.Errorf("it names %d items, there are %d", c.Items, len(g.staged))
	}
	if sum := digest(g.staged); c.SHA256 != "" && c.SHA256 != sum {
		return fmt.Errorf("its sha256 does not fit: that of the items is %s", sum)
	}
	return nil
}

// settle puts what is staged into force if the commit fits.
func (g *group) settle() {
	g.bad = nil
	if g.commit == "" {
		g.active = nil
	} else if g.bad = g.fits(); g.bad == nil {
		g.active, g.revision = maps.Clone(g.staged), g.committed
	}
}

func (s *store) group(name string) *group {
	g := s.groups[name]
	if g == nil {
		g = &group{staged: map[string]string{}}
		s.groups[name] = g
	}
	return g
}

// stage takes an item or the commit of a group; "": it was deleted.
func (s *store) stage(name, item, text string) {
	g := s.group(name)
	switch {
	case item == "":
		g.commit, g.committed = text, s.at
	case text == "":
		delete(g.staged, item)
	default:
		g.staged[item] = text
	}
	s.staged = true
}

// dropUnlisted forgets what a list of all groups lacks.
func (s *store) dropUnlisted() {
	for name, g := range s.groups {
		if key := stagingDir + name; !s.listed[key] {
			g.commit = ""
		}
		maps.DeleteFunc(g.staged, func(item, _ string) bool {
			return !s.listed[stagingDir+name+"/"+item]
		})
	}
	s.staged = true
}

// applyGroups brings the items of groups into force. A key under config/ goes before that of a
// group, and groups go by name.
func (s *store) applyGroups() {
	s.staged = false
	from := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[name]
		g.settle()
		for key := range g.active {
			if from[key] == "" {
				from[key] = name
			}
		}
		if g.commit == "" && len(g.staged) == 0 {
			delete(s.groups, name)
		}
	}
	for key, v := range s.values {
		if v.Group != "" && from[key] == "" {
			s.forget(key)
		}
	}
	for key, name := range from {
		if v, taken := s.values[key]; !taken || v.Group != "" {
			g := s.groups[name]
			s.set(key, g.active[key], name, g.revision)
		}
	}
}

// badCommits adds an item for each commit that does not fit.
func (s *store) badCommits(to map[string]external.Item, revision int64) {
	for name, g := range s.groups {
		if g.bad != nil {
			key := stagingDir + name
			to[key] = external.Item{Key: key, Revision: revision,
				Problem: external.Problem{State: external.Invalid, Detail: g.bad.Error()}}
		}
	}
}
