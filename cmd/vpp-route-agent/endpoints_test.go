package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// No part of a password is shown, wherever somebody has put it, and it is searched for.
func TestShownEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:2379":                       "same",
		"http://a:2379,https://[fd00::1]:2379/,b:239": "same",
		"10.0.0.1,fd00::1,etcd.example":               "same",
		"http://a:1, http://b:2":                      "same",
		"http://etcd":                                 "same",
		"http://root:planted@10.0.0.1:2379":           "http://(user)@10.0.0.1:2379",
		"http://root:planted/x@10.0.0.1:2379":         "http://(user)@10.0.0.1:2379",
		"http://root:x/planted@10.0.0.1:2379":         "http://(user)@10.0.0.1:2379",
		"root:planted@h:2379":                         "(user)@h:2379",
		"http://root:x@planted@h:2379":                "http://(user)@h:2379",
		"http://root:planted@x@h:2379":                "http://(user)@h:2379",
		"http://a:1,http://root:planted@h:2379":       "http://(user)@h:2379",
		"http://root:planted,x@h:1,http://b:2":        "http://(user)@h:1,http://b:2",
		"http://root:1,planted@h:1":                   "http://(user)@h:1",
		"http://root:planted?x#y@h:1":                 "http://(user)@h:1",
		"http://root:1234@planted":                    "http://(user)@" + notShown,
		"http://root:planted":                         notShown,
		"http://root:planted/x":                       notShown,
		"http://root:planted%40h:1":                   notShown,
		"http://a:1,root:x/planted":                   "http://a:1," + notShown,
	} {
		want = strings.ReplaceAll(want, "same", text)
		if got := shownEndpoints(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
		found := slices.ContainsFunc(endpointPasswords(text), func(p string) bool {
			return strings.Contains(p, "planted")
		})
		isNone := !strings.Contains(text, ":") || !strings.Contains(text, "planted") ||
			strings.HasSuffix(text, "@planted")
		if found == isNone {
			t.Errorf("%s: %q are searched for", text, endpointPasswords(text))
		}
	}
}

// What is searched for leaves the rest: addresses, schemes, ports.
func TestEndpointPasswordsAreNoMore(t *testing.T) {
	const list = "https://a.example:2379,https://root:planted/1@10.0.0.1:2379," +
		"https://root:planted/2@10.0.0.2:2379"
	const said = `dial 10.0.0.1:2379, https://a.example:2379: tls`
	all := endpointPasswords(list)
	for _, p := range all {
		if len(p) >= 4 && strings.Contains(said, p) {
			t.Errorf("%q is searched for", p)
		}
	}
	if !slices.Contains(all, "planted") { // url.Parse quotes it so, as a port
		t.Errorf("%q are searched for", all)
	}
}

// What commands say about a refused endpoint has nothing of a password.
func TestCommandsShowNoPasswordInEndpoints(t *testing.T) {
	for _, endpoint := range []string{"http://root:planted/x@127.0.0.1:1",
		"root:planted@127.0.0.1:1", "http://root:planted@x@127.0.0.1:1"} {
		t.Setenv("ETCD_ENDPOINTS", endpoint)
		for _, command := range []string{"audit --cluster", "lab attach a b", "lab --help",
			"plan --live --node a", "reflectors status"} {
			root := newCommand()
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetArgs(strings.Fields(command))
			err := root.ExecuteContext(t.Context())
			if strings.Contains(fmt.Sprint(err, out.String()), "planted") {
				t.Errorf("%s: %v\n%s", command, err, out.String())
			}
		}
	}
}
