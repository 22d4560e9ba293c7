package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func noEnv(string) (string, bool) { return "", false }

const least = `
name: t
topology:
  nodes:
    a: {kind: linux}
`

func TestTopologyRefusesWhatItDoesNotKnowWithLineAndNode(t *testing.T) {
	if _, err := parseTopology([]byte(least), noEnv); err != nil {
		t.Fatalf("the least topology: %v", err)
	}
	link := func(a, b string) string {
		return `links: [{endpoints: ["` + a + `", "` + b + `"]}]` + "\n  nodes:"
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"a field of the file": {
			"name: t", "name: t\nprefix: x", `line 3: the file: unknown field "prefix"`,
		},
		"a field of the topology": {
			"nodes:", "groups: {}\n  nodes:", `line 4: topology: unknown field "groups"`,
		},
		"a field of a node": {
			"kind: linux", "kind: linux, startup-delay: 3",
			`line 5: node a: unknown field "startup-delay"`,
		},
		"a field of the defaults": {
			"nodes:", "defaults: {user: x}\n  nodes:", `line 4: defaults: unknown field "user"`,
		},
		"a field with a capital": {
			"kind: linux", "Kind: linux", `node a: unknown field "Kind"`,
		},
		"a field of the file in capitals": {"name: t", "NAME: t", `unknown field "NAME"`},
		"a field twice": {
			"kind: linux", "kind: linux, kind: linux", `line 5: node a: "kind" is there twice`,
		},
		"a second document": {
			"{kind: linux}\n", "{kind: linux}\n---\nname: u\n", "line 6: a second document",
		},
		"another kind": {
			"kind: linux", "kind: bridge", `line 5: node a: kind "bridge" is not supported`,
		},
		"no kind": {
			"kind: linux", "image: x", "line 5: node a has no kind",
		},
		"a kind that is none": {
			"nodes:", "kinds: {srl: {}}\n  nodes:", "line 4: kind srl is not supported",
		},
		"a kind of a kind": {
			"nodes:", "kinds: {linux: {kind: bridge}}\n  nodes:",
			`line 4: kind linux: kind "bridge" means nothing`,
		},
		"a network mode": {
			"kind: linux", "kind: linux, network-mode: host",
			`line 5: node a: network-mode "host" is not supported, only none`,
		},
		"options of a bind": {
			"kind: linux", `kind: linux, binds: ["a:/b:ro"]`,
			`line 5: node a: binds: "a:/b:ro" is not supported`,
		},
		"a relative target": {
			"kind: linux", `kind: linux, binds: ["a:b"]`, `"a:b" is not supported`,
		},
		"a target that leads to the root": {
			"kind: linux", `kind: linux, binds: ["a:/etc/.."]`, "cover the whole node",
		},
		"a bind from a home": {
			"kind: linux", `kind: linux, binds: ["~/a:/b"]`, "~ is not supported",
		},
		"containerlab's folder": {
			"kind: linux", `kind: linux, binds: ["__clabDir__/x:/x"]`,
			"line 5: node a: binds: \"__clabDir__/x:/x\": __clabDir__ is not supported",
		},
		"containerlab's folder of a node": {
			"kind: linux", `kind: linux, exec: ["ls __clabNodeDir__"]`,
			"__clabNodeDir__ is not supported",
		},
		"all of this machine's variables": {
			"kind: linux", "kind: linux, env: {__IMPORT_ENVS: true}",
			"node a: env: __IMPORT_ENVS is not supported",
		},
		"a variable that is a list": {
			"kind: linux", "kind: linux, env: {A: [b]}", "line 5: node a: env: A: want a text",
		},
		"a line for a shell": {
			"kind: linux", `kind: linux, exec: ["a | b"]`,
			"line 5: node a: exec: \"a | b\": no shell runs this",
		},
		"an open quote": {
			"kind: linux", `kind: linux, exec: ["a 'b"]`, "not closed",
		},
		"a reserved shell character": {
			"kind: linux", `kind: linux, cmd: "sleep 1; sleep 2"`, "sh -c",
		},
		"a line that is empty": {
			"kind: linux", `kind: linux, exec: [" "]`,
			"line 5: node a: exec: a line without a command",
		},
		"a variable before a command": {
			"kind: linux", `kind: linux, exec: ["A=b ls"]`,
			`"A=b" is no command: variables belong into env`,
		},
		"an option for a command": {
			"kind: linux", `kind: linux, exec: ["-i ls"]`, `"-i" is no command`,
		},
		"lines that are one": {
			"kind: linux", "kind: linux, exec: ls", "node a: exec: want a list",
		},
		"a circle": {
			"{kind: linux}", "&a {kind: linux, <<: *a}", "line 5: node a: << leads back",
		},
		"a template": {
			"kind: linux", "kind: linux, cmd: '{{ .cmd }}'",
			"line 5: containerlab takes {{ for a template",
		},
		"an unknown form of a variable": {
			"name: t", "name: ${X?no}", "line 2: ${ is not followed by",
		},
		"a node's name with a capital": {"a:", "A:", "line 5: node A: want lower case"},
		"a node's name that is too long": {
			"a:", strings.Repeat("a", 64) + ":", "63 characters at most, not 64",
		},
		"no name": {"name: t", "", "no name"},
		"a name with a capital": {
			"name: t", "name: T", `line 2: name "T": want lower case`,
		},
		"a name that is too long": {
			"name: t", "name: " + strings.Repeat("t", 21), "20 characters at most, not 21",
		},
		"no nodes": {"\n    a: {kind: linux}", " {}", "no nodes"},
		"a part twice": {
			"{kind: linux}", "{kind: linux}\n  nodes: {}",
			`line 6: topology: "nodes" is there twice`,
		},
		"a link to nowhere": {
			"nodes:", link("a:eth1", "b:eth1"), `line 4: link: "b:eth1": there is no node "b"`,
		},
		"a link with one end": {
			"nodes:", "links: [{endpoints: [\"a:eth1\"]}]\n  nodes:",
			"line 4: link: want two endpoints",
		},
		"an interface of two links": {
			"nodes:", link("a:eth1", "a:eth1"), `"a:eth1" has a link already`,
		},
		"an end without interface": {"nodes:", link("a:eth1", "a"), "node:interface"},
		"an interface that is there": {
			"nodes:", link("a:eth1", "a:lo"), `line 4: link: "a:lo": a node has its lo already`,
		},
		"an interface with a long name": {
			"nodes:", link("a:eth1", "a:abcdefghijklmnop"), "15 characters at most, not 16",
		},
		"a link to this machine": {
			"nodes:", link("a:eth1", "host:x"),
			`line 4: link: "host:x": a link to this machine is not supported`,
		},
		"a link to the management": {
			"nodes:", link("a:eth1", "mgmt-net:x"),
			"a link to the management network is not supported",
		},
		"a link to an outer network": {
			"nodes:", link("a:eth1", "MACVLAN:enp0s3"),
			"a link to a network of this machine is not supported",
		},
		"a field of a link": {
			"nodes:", "links: [{type: veth, endpoints: [\"a:eth1\", \"a:eth2\"]}]\n  nodes:",
			`line 4: link: unknown field "type"`,
		},
	} {
		_, err := parseTopology([]byte(strings.Replace(least, c.old, c.new, 1)), noEnv)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
}

func TestAllThatIsRefusedIsToldAtOnce(t *testing.T) {
	_, err := parseTopology(
		[]byte(strings.Replace(least, "kind: linux", "kind: bridge, user: x", 1)), noEnv)
	if err == nil || !strings.Contains(err.Error(), "bridge") ||
		!strings.Contains(err.Error(), "user") {
		t.Errorf("got %v", err)
	}
}

// A kept lab says that it is up when the sessions of these are.
func TestAgentsAreTheNodesThatStartOne(t *testing.T) {
	for lab, want := range map[string][]string{
		"mesh-mixed": {"node-1", "node-2", "node-3"}, "kubernetes": {"node-1", "node-2"},
		"etcd-only": {"node-1", "node-2", "node-3"},
	} {
		file, err := find(filepath.Join("../../labs", lab))
		if err != nil {
			t.Fatal(err)
		}
		top, err := readTopology(file, noEnv)
		if err != nil {
			t.Fatal(err)
		}
		if got := top.agents(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", lab, got, want)
		}
	}
}

func TestNodeTakesOverWhatHoldsForAll(t *testing.T) {
	top, err := parseTopology([]byte(`
name: t
topology:
  defaults:
    kind: linux
    binds: ["d/__clabNodeName__:/d"]
    env: &all {A: all, B: "${B:=default}", C: "${C:=default}"}
  kinds: {linux: {image: i, exec: [first __clabLabName__], env: {A: kind}}}
  nodes:
    a: {binds: ["n:/n/../m"], exec: [second __clabNodeName__], env: {A: node}}
    b:
    c: {env: {<<: *all, C: own}}
`), func(name string) (string, bool) {
		return map[string]string{"C": "environment"}[name], name == "C"
	})
	check(t, err)
	a, b, c := top.Nodes["a"], top.Nodes["b"], top.Nodes["c"]
	if len(a.Binds) != 2 || a.Binds[0] != (bind{"d/a", "/d"}) || a.Binds[1] != (bind{"n", "/m"}) ||
		b.Binds[0].source != "d/b" {
		t.Errorf("binds of a: %v, of b: %v", a.Binds, b.Binds)
	}
	if got := strings.Join(a.Exec, ", "); got != "first clab-t, second a" {
		t.Errorf("lines of a: %s", got)
	}
	if a.Image != "i" || a.Env["A"] != "node" || b.Env["A"] != "kind" || b.Env["B"] != "default" ||
		b.Env["C"] != "environment" {
		t.Errorf("a has %+v, b has %+v", a, b)
	}
	if c.Env["A"] != "all" || c.Env["C"] != "own" {
		t.Errorf("c has %+v", c)
	}
}

func TestBindOfANodeReplacesAGeneralOneAndLiesOnWhatIsAroundIt(t *testing.T) {
	top, err := parseTopology([]byte(`
name: t
topology:
  defaults: {kind: linux, binds: ["general:/etc/x", "inside:/etc/y/z"]}
  nodes: {a: {binds: ["own:/etc/x", "around:/etc/y"]}}
`), noEnv)
	check(t, err)
	want := []bind{{"own", "/etc/x"}, {"around", "/etc/y"}, {"inside", "/etc/y/z"}}
	if got := top.Nodes["a"].Binds; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTextsStayAsTheyAreWritten(t *testing.T) {
	top, err := parseTopology(
		[]byte(strings.Replace(least, "kind: linux",
			`kind: linux, env: {A: 1.50, B: 0x10, C: yes, D: 1e3, E: 010, F: ~, G: `+
				`"1.50", H: 2026-01-01}`, 1)),
		noEnv)
	check(t, err)
	want := map[string]string{
		"A": "1.50", "B": "0x10", "C": "yes", "D": "1e3", "E": "010", "F": "", "G": "1.50",
		"H": "2026-01-01",
	}
	for name, value := range want {
		if got := top.Nodes["a"].Env[name]; got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

// What is wanted here is what containerlab 0.79 makes of it.
func TestVariablesAreExpandedAsContainerlabDoes(t *testing.T) {
	env := func(name string) (string, bool) {
		value, set := map[string]string{"SET": "v", "EMPTY": ""}[name]
		return value, set
	}
	for text, want := range map[string]string{
		"$SET/${SET}": "v/v", "$NO/${NO}": "$NO/$NO", "$EMPTY": "$EMPTY", "$$SET": "$SET",
		"$1 ${1} $_ $ $(x)": "$1 ${1} $_ $ $(x)",
		"${SET:-d}":         "v", "${NO:-d}": "d", "${EMPTY:-d}": "d", "${NO:-}": "$NO",
		"${NO:-a b:/c}": "a b:/c", "${NO:-$SET}": "v", "${NO:-$NO2}": "$NO2",
		"${SET:=d}": "v", "${NO:=d}": "d", "${EMPTY:=d}": "d",
		"${SET-d}": "v", "${NO-d}": "d", "${EMPTY-d}": "$EMPTY", "${NO=d}": "d",
		"${EMPTY=d}": "$EMPTY",
		"${SET+o}":   "o", "${NO+o}": "", "${EMPTY+o}": "o", "${SET:+o}": "o", "${NO:+o}": "",
		"${EMPTY:+o}": "o",
	} {
		if got, err := expand([]byte(text), env); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"${", "${SET", "${SET?x}", "${NO:-${SET}}", "${NO:-a$SET}", "${NO:--1}", "${}",
	} {
		got, err := expand([]byte("a\n"+text), env)
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
}
