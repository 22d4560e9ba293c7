// Package archtest holds the import directions of the repository, each with its reason, and that
// every package says what it is for.
package archtest

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "vpp-route-agent"

type pkg struct {
	ImportPath, Dir, Name string
	GoFiles, Imports      []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,Imports", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

// pure packages may import only what is listed of this module, and no library that does I/O.
var pure = map[string][]string{
	"internal/route":           {},
	"internal/calico":          {"internal/changes", "internal/selector"},
	"internal/changes":         {},
	"internal/selector":        {},
	"internal/yamldoc":         {},
	"internal/repeats":         {},
	"internal/calico/kube":     {"internal/calico"},
	"internal/calico/manifest": {"internal/calico", "internal/calico/kube", "internal/yamldoc"},
	"ipam":                     {"internal/calico", "internal/route"},
	"bgp":                      {"internal/calico", "internal/route", "internal/selector", "ipam"},
	"bgp/reflector":            {"bgp", "internal/calico", "internal/selector"},
	"internal/fib":             {"internal/durable", "internal/route"},
	"internal/audit":           {"bgp", "bgp/reflector", "internal/calico"},
	"internal/mrt":             {"bgp"},
	"internal/external": {
		"internal/external/proto/ligato/linux", "internal/external/proto/ligato/netalloc",
		"internal/external/proto/ligato/vpp", "internal/external/proto/ligato/vpp/l3",
		"internal/fib", "internal/route",
	},
}

// sole names the packages that alone may import a library, so that its types stay behind one door.
var sole = []struct {
	library string
	allowed []string
	why     string
}{
	{"github.com/osrg/gobgp/", []string{"bgp/gobgp", "internal/bench", "internal/bench/baregobgp"},
		"GoBGP's types do not leave their adapter; the benchmark runs a bare one to compare with"},
	{"go.fd.io/govpp", []string{"vpp", "vpp/vpptest", "internal/bench"},
		"GoVPP's types and generated bindings do not leave their adapter; the benchmark " +
			"compares with its ways"},
	{"github.com/vishvananda/", []string{"internal/kernel", "internal/netlab"},
		"one writer of kernel routes; netlab makes test namespaces"},
	{"go.etcd.io/etcd/client/",
		[]string{"internal/etcd", "internal/calico/etcd", "internal/external/etcd",
			"internal/reflectors", "internal/calico/calicotest", "internal/bench"},
		"one way to list and watch, two publishers, the reflector controller, which reads at one " +
			"revision, one writer of test data; the benchmark compares with other ways of reading"},
	{module + "/internal/etcd",
		[]string{"internal/calico/etcd", "internal/external/etcd", "internal/reflectors"},
		"Calico's data, external configuration and what agents and the reflector controller " +
			"tell each other are kept in etcd, nothing else is"},
	{"go.etcd.io/etcd/server/", []string{"internal/calico/calicotest"},
		"the embedded server is for tests and the demo"},
	{
		module + "/internal/testcluster",
		[]string{"internal/bench", "internal/bgpfuzz", "internal/chaos", "internal/demo",
			"internal/pagetest"},
		"whatever runs a cluster to show, break or measure agents; production code does not",
	},
	{"k8s.io/", []string{"internal/kubernetes", "internal/kubernetes/kubetest"},
		"Kubernetes' types do not leave their adapter, and its stand-in"},
	{module + "/internal/kubernetes",
		[]string{"internal/reflectors", "internal/calico/kubernetes", "internal/secrets",
			"cmd/vpp-route-agent", "internal/demo", "internal/bench", "internal/chaos",
			"internal/testcluster", "internal/calico/calicotest"},
		"Nodes for the reflector controller, Calico's data, passwords: nothing else is read; " +
			"calicotest writes them in labs; " +
			"whatever runs a cluster to show, break or measure agents has its stand-in"},
	{"github.com/spf13/", []string{"cmd/vpp-route-agent"}, "flags end in cmd"},
}

// apart lists packages that must not meet: adapters know the shared words only, and production code
// knows no test double.
var apart = []struct {
	from, to string
	why      string
}{
	{"vpp", "internal/kernel", "adapters never import each other"},
	{"vpp", "internal/fib", "adapters satisfy interfaces, they do not know who calls"},
	{"internal/kernel", "vpp", "adapters never import each other"},
	{"internal/kernel", "internal/fib", "adapters satisfy interfaces, they do not know who calls"},
	{"bgp/gobgp", "internal/fib",
		"the speaker hands on what it learns and does not know who forwards"},
	{"internal/etcd", "internal/calico", "it reads keys for anybody and knows the meaning of none"},
	{"internal/calico/lastgood", "internal/calico/etcd",
		"it keeps snapshots, wherever they come from"},
	{"internal/calico/etcd", "bgp", "the datastore does not know what its data are for"},
	{"internal/calico/kubernetes", "bgp", "the datastore does not know what its data are for"},
	{"internal/kubernetes", "internal/calico", "it reads objects and knows the meaning of none"},
	{"internal/calico/lastgood", "internal/calico/kubernetes",
		"it keeps snapshots, wherever they come from"},
	{"internal/fib", "internal/uplink", "the engine knows no source and no kind of objects"},
	{"internal/uplink", "vpp", "adapters satisfy interfaces"},
	{"internal/agent", "internal/uplink", "cmd puts it in"},
	{"internal/agent", "internal/external", "a source calls Want; cmd puts it in"},
	{"internal/agent", "internal/reflectors", "cmd puts it in"},
	{"internal/agent", "bgp/gobgp", "cmd puts the adapters in"},
	{"internal/agent", "vpp", "cmd puts the adapters in"},
	{"internal/agent", "internal/kernel", "cmd puts the adapters in"},
	{"internal/agent", "internal/calico/etcd", "cmd puts the adapters in"},
	{"internal/agent", "internal/calico/kubernetes", "cmd puts the adapters in"},
}

func TestImportDirections(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imp := range p.Imports {
			local, isLocal := strings.CutPrefix(imp, module+"/")
			if allowed, isPure := pure[name]; isPure {
				if isLocal && !slices.Contains(allowed, local) {
					t.Errorf("%s imports %s: a pure package imports only %v", name, local, allowed)
				}
				if imp == "net" || imp == "net/http" || imp == "os/exec" {
					t.Errorf("%s imports %s: a pure package does no I/O", name, imp)
				}
			}
			for _, s := range sole {
				if strings.HasPrefix(imp, s.library) && !slices.Contains(s.allowed, name) {
					t.Errorf("%s imports %s: %s", name, imp, s.why)
				}
			}
			for _, a := range apart {
				if name == a.from && local == a.to {
					t.Errorf("%s imports %s: %s", name, local, a.why)
				}
			}
		}
	}
}

func TestRulesNameExistingPackages(t *testing.T) {
	exists := map[string]bool{}
	for _, p := range packages(t) {
		exists[strings.TrimPrefix(p.ImportPath, module+"/")] = true
	}
	for name := range pure {
		if !exists[name] {
			t.Errorf("rule about %s, which does not exist", name)
		}
	}
	for _, a := range apart {
		if !exists[a.from] || !exists[a.to] {
			t.Errorf("rule about %s and %s, of which one does not exist", a.from, a.to)
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	for _, p := range packages(t) {
		found := len(p.GoFiles) == 0 // tests only
		for _, f := range p.GoFiles {
			ast, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil,
				parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			found = found || ast.Doc != nil
		}
		if !found {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}
