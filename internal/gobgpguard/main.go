// Command gobgpguard prepares a build with a GoBGP that is edited where its API has no way (docs/decisions/0011-gobgp-guard.md):
//
//   - its decoder returns an error where it would panic, so that no peer's bytes end the process;
//   - it queues no more of what a peer sends than it can soon handle, and of what waits for a peer each prefix once;
//   - listing peers does not race with their OPENs;
//   - peers see what they would see of BIRD (wire.go);
//   - of their routes it keeps what BGP's RFCs have it keep, and no more (kept.go);
//   - it tells of best paths in its own types (0013-best-paths-without-protobuf.md), and its policies are quick with many filters.
//
// The Makefile runs it before anything is compiled:
//
//	gobgpguard FOLDER
//
// It copies the GoBGP that go.mod names from the module cache to FOLDER/gobgp, where it makes the edits and adds files with the functions that they
// call. FOLDER/go.mod is the module's own with that copy in the place of GoBGP, for go's flag -modfile. FOLDER is relative to the module's root,
// in which gobgpguard runs.
package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/osrg/gobgp/v3"

var (
	//go:embed decoder.go.txt
	decoder []byte
	//go:embed attributes.go.txt
	attributes []byte
	//go:embed backlog.go.txt
	backlog []byte
	//go:embed outgoing.go.txt
	outgoing []byte
	//go:embed watch.go.txt
	watch []byte
	//go:embed shared.go.txt
	shared []byte
	//go:embed largecommunities.go.txt
	largeCommunities []byte
	//go:embed joined.go.txt
	joined []byte
)

// added are the files that have the new functions.
var added = map[string][]byte{
	"pkg/packet/bgp/guarded.go": decoder,
	"pkg/apiutil/guarded.go":    attributes,
	"pkg/server/backlog.go":     backlog,
	"pkg/server/outgoing.go":    outgoing,
	// These two guard nothing: they tell of best paths without protobuf (docs/decisions/0013-best-paths-without-protobuf.md).
	"pkg/server/watchpaths.go":         watch,
	"internal/pkg/table/sharedpath.go": shared,
	// Nor do these: what many policies cost (docs/decisions/0011-gobgp-guard.md).
	"internal/pkg/table/largecommunities.go": largeCommunities,
	"internal/pkg/table/joinedpath.go":       joined,
}

// edit replaces a text that must be in a file of GoBGP's exactly once.
type edit struct{ file, old, new string }

var edits = []edit{
	{ // every message passes through here
		"pkg/packet/bgp/bgp.go",
		"\nfunc parseBody(h *BGPHeader, data []byte, options ...*MarshallingOption) (*BGPMessage, error) {\n",
		"\nfunc parseBodyUnguarded(h *BGPHeader, data []byte, options ...*MarshallingOption) (*BGPMessage, error) {\n",
	},
	{ // and every attribute of an UPDATE through here
		"pkg/packet/bgp/bgp.go",
		"\n\t\terr = p.DecodeFromBytes(data, options...)\n\t\tif err != nil {\n\t\t\te = err.(*MessageError)\n",
		"\n\t\terr = decodeAttribute(p, data, options...)\n\t\tif err != nil {\n\t\t\te = err.(*MessageError)\n",
	},
	{ // every path that is watched or listed
		"pkg/apiutil/attribute.go",
		"\nfunc MarshalPathAttributes(attrList []bgp.PathAttributeInterface) ([]*apb.Any, error) {\n",
		"\nfunc marshalPathAttributesUnguarded(attrList []bgp.PathAttributeInterface) ([]*apb.Any, error) {\n",
	},
	{ // whoever lists peers reads this without the lock that a peer's OPEN is noted under
		"pkg/server/server.go",
		"\n\tconf := *peer.fsm.pConf\n\tpeerAfiSafis := peer.fsm.pConf.AfiSafis\n",
		"\n\tconf := *peer.fsm.pConf\n\tpeerAfiSafis := append([]oc.AfiSafi(nil), peer.fsm.pConf.AfiSafis...)\n",
	},
	{ // sessions read on in what is cleared when GoBGP stops; that there is no AS is what says so
		"pkg/server/server.go",
		"\n\t\ts.bgpConfig.Global = oc.Global{}\n\t\treturn nil\n\t}, false)\n",
		"\n\t\ts.bgpConfig.Global.Config.As = 0\n\t\treturn nil\n\t}, false)\n",
	},
	{ // what a peer is ahead of us
		"pkg/server/fsm.go",
		"\n\tincomingCh           *channels.InfiniteChannel\n",
		"\n\tincomingCh           *channels.InfiniteChannel\n\tbacklog              backlog\n",
	},
	{ // the loop that reads a peer's messages
		"pkg/server/fsm.go",
		"\n\tfor {\n\t\tfmsg, err := h.recvMessageWithError()\n\t\tif fmsg != nil {\n",
		"\n\tfor {\n\t\th.awaitRoom(ctx)\n\t\tfmsg, err := h.recvMessageWithError()\n\t\tif fmsg != nil {\n\t\t\th.fsm.backlog.add(fmsg.weight())\n",
	},
	{ // the server takes one of them
		"pkg/server/server.go",
		"\n\thandlefsmMsg := func(e *fsmMsg) {\n",
		"\n\thandlefsmMsg := func(e *fsmMsg) {\n\t\tdefer s.handled(e)\n",
	},
	{ // whose watch it is
		"pkg/server/server.go",
		"\ntype watchOptions struct {\n",
		"\ntype watchOptions struct {\n\tinside bool\n",
	},
	{
		"pkg/server/server.go",
		"\n\tw := s.watch(opts...)\n\n\tsimpleSend := ",
		"\n\tw := s.watch(append(opts, watchInside(ctx))...)\n\n\tsimpleSend := ",
	},
	{ // a watch takes an entry of its queue
		"pkg/server/server.go",
		"\n\t\tw.realCh <- ev.(watchEvent)\n",
		"\n\t\tif !reachMark(ev) {\n\t\t\tw.realCh <- ev.(watchEvent)\n\t\t}\n",
	},
	{ // and leaves the rest
		"pkg/server/server.go",
		"\n\t\tcleanInfiniteChannel(w.ch)\n",
		"\n\t\tcleanWatch(w.ch)\n",
	},
	{ // what waits for a peer
		"pkg/server/fsm.go",
		"\ntype fsmOutgoingMsg struct {\n",
		"\ntype fsmOutgoingMsg struct {\n\tjoined       *joined\n\twaiting      *atomic.Int64\n\tweight       int64\n",
	},
	{
		"pkg/server/fsm.go",
		"\n\t\"sync\"\n",
		"\n\t\"sync\"\n\t\"sync/atomic\"\n",
	},
	{ // the loop that sends takes it
		"pkg/server/fsm.go",
		"range table.CreateUpdateMsgFromPaths(m.Paths, options) {\n",
		"range m.updates(options) {\n",
	},
	{ // with the session it ends
		"pkg/server/server.go",
		"\n\t\tpeer.fsm.outgoingCh = channels.NewInfiniteChannel()\n",
		"\n\t\tpeer.fsm.outgoingCh = channels.NewInfiniteChannel()\n\t\tpeer.outgoing = nil\n",
	},
	{ // best paths were copied for whoever watches, and for nobody
		"pkg/server/server.go",
		"\nfunc (s *BgpServer) notifyBestWatcher(best []*table.Path, multipath [][]*table.Path) {\n",
		"\nfunc (s *BgpServer) notifyBestWatcherOfCopies(best []*table.Path, multipath [][]*table.Path) {\n",
	},
	{ // a session that ends with its peer's configuration: watches were not told of that in order
		"pkg/server/server.go",
		"\n\ts.propagateUpdate(n, n.DropAll(n.configuredRFlist()))\n\treturn nil\n",
		"\n\ts.propagateUpdate(n, n.DropAll(n.configuredRFlist()))\n\ts.tellDeleted(n)\n\treturn nil\n",
	},
	{ // a condition on large communities, of which our policies have several for each filter
		"internal/pkg/table/policy.go",
		"\n\tcs := path.GetLargeCommunities()\n\tfor _, x := range c.set.list {\n\t\tresult = false\n\t\tfor _, y := range cs {\n\t\t\tif x.MatchString(y.String()) {\n\t\t\t\tresult = true\n\t\t\t\tbreak\n\t\t\t}\n\t\t}\n",
		"\n\tcs := path.sharedLargeCommunities()\n\tfor _, x := range c.set.list {\n\t\tresult = hasLarge(cs, x)\n",
	},
	{ // their removal
		"internal/pkg/table/policy.go",
		"\n\t\tRegexpRemoveLargeCommunities(path, a.removeList)\n",
		"\n\t\tpath.SetLargeCommunities(withoutLarge(path.sharedLargeCommunities(), a.removeList), true)\n",
	},
	{ // each statement of a policy that changes a path
		"internal/pkg/table/policy.go",
		"\n\tfor _, stmt := range p.Statements {\n\t\tvar result RouteType\n\t\tresult, path = stmt.Apply(logger, path, options)\n",
		"\n\tbefore := path\n\tfor _, stmt := range p.Statements {\n\t\tvar result RouteType\n\t\tlast := path\n\t\tresult, path = stmt.Apply(logger, path, options)\n\t\tpath = path.joined(last, before)\n",
	},
}

var (
	allEdits = slices.Concat(edits, wireEdits, keptEdits)
	allAdded = []map[string][]byte{added, wireAdded, keptAdded}
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gobgpguard FOLDER")
		os.Exit(2)
	}
	if err := prepare(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gobgpguard:", err)
		os.Exit(1)
	}
}

// prepare makes folder, unless it is there and made of the same things. It is complete or not there at any moment.
func prepare(folder string) error {
	goMod, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	goSum, err := os.ReadFile("go.sum")
	if err != nil {
		return err
	}
	goMod = fmt.Appendf(goMod, "\nreplace %s => ./%s\n", module, filepath.ToSlash(filepath.Join(folder, "gobgp")))
	stamp := digest(goMod, goSum, fmt.Append(nil, allEdits, allAdded))
	if old, err := os.ReadFile(filepath.Join(folder, "stamp")); err == nil && string(old) == stamp {
		return nil
	}

	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(folder), filepath.Base(folder)+"-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := copyGuarded(filepath.Join(fresh, "gobgp")); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"go.mod": goMod, "go.sum": goSum, "stamp": []byte(stamp)} {
		if err := os.WriteFile(filepath.Join(fresh, name), content, 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(fresh, folder)
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// copyGuarded copies GoBGP to folder, with the guard.
func copyGuarded(folder string) error {
	version, source, err := locate()
	if err != nil {
		return err
	}
	if err := copySource(folder, source); err != nil {
		return err
	}
	for _, e := range allEdits {
		if err := e.apply(folder); err != nil {
			return fmt.Errorf("GoBGP %s is not the one that the guard was written for: %w. "+
				"Find where it does this now, or whether it survives panics by itself: docs/decisions/0011-gobgp-guard.md", version, err)
		}
	}
	for _, files := range allAdded {
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e edit) apply(folder string) error {
	file := filepath.Join(folder, e.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := bytes.Count(text, []byte(e.old)); n != 1 {
		return fmt.Errorf("%s has %d times, not once, %q", e.file, n, strings.TrimSpace(e.old))
	}
	return os.WriteFile(file, bytes.Replace(text, []byte(e.old), []byte(e.new), 1), 0o644)
}

// locate returns the version of GoBGP that go.mod names and where its source is, after a download if need be.
func locate() (version, folder string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var m struct{ Version, Dir, Error string }
	if e := json.Unmarshal(out, &m); e != nil || m.Error != "" || m.Dir == "" {
		return "", "", fmt.Errorf("go mod download %s: %s (%v)", module, m.Error, err)
	}
	return m.Version, m.Dir, nil
}

// copySource copies what is compiled, and the licence. In the module cache everything is read-only.
func copySource(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		if !compiled(rel) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o644)
	})
}

func compiled(name string) bool {
	return name == "go.mod" || name == "LICENSE" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}
