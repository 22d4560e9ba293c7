package kubetest_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

type server interface {
	calicotest.Objects
	Allow(rights []string)
	Compact()
	Version() int
	URL() string
	CA() []byte
}

// answer is what of an answer a client relies on.
type answer struct {
	Status int
	Kind   string
	Reason string
	Code   int
	Items  int
	More   bool   // there is another page
	Event  string // the first of a watch
}

// ask sends a request of the agent's and reads the answer, or the first event of a watch.
func ask(t *testing.T, s server, token, path string) (a answer) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	var text []byte
	if strings.Contains(path, "watch=true") && a.Status == http.StatusOK {
		line, _ := bufio.NewReader(resp.Body).ReadBytes('\n')
		var e struct {
			Type   string
			Object json.RawMessage
		}
		_ = json.Unmarshal(line, &e)
		a.Event, text = e.Type, e.Object
	} else {
		text, _ = io.ReadAll(resp.Body)
	}
	var body struct {
		Kind, Reason string
		Code         int
		Metadata     struct{ Continue string }
		Items        []json.RawMessage
	}
	_ = json.Unmarshal(text, &body)
	a.Kind, a.Reason, a.Code = body.Kind, body.Reason, body.Code
	a.Items, a.More = len(body.Items), body.Metadata.Continue != ""
	return a
}

// What the agent relies on is the same of the stand-in and of an API server.
func TestTheStandInIsAsAnAPIServer(t *testing.T) {
	program := kubetest.FindReal()
	if program == "" {
		t.Skip("there is no build/kube-apiserver: make kube-apiserver builds it")
	}
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	const group, crd = "crd.projectcalico.org/v1", ".crd.projectcalico.org"
	var before [2]int
	servers := [2]server{kubetest.NewServer(t), kubetest.NewReal(t, program, e.Endpoint())}
	for i, s := range servers {
		s.Install(group, "bgppeers", "ippools")
		s.Allow([]string{"list bgppeers" + crd, "watch bgppeers" + crd, "list nodes",
			"watch nodes", "list bgpfilters" + crd})
		before[i] = s.Version()
		for _, name := range []string{"a", "b", "c"} {
			s.PutObject("bgppeers"+crd, fmt.Appendf(nil,
				`{"metadata":{"name":%q},"spec":{"asNumber":65000}}`, name))
		}
		s.PutObject("nodes", []byte(`{"metadata":{"name":"n"}}`))
	}
	const peers = "/apis/" + group + "/bgppeers?"
	for _, tc := range []struct{ name, token, path string }{
		{"list", kubetest.Token, peers},
		{"a page", kubetest.Token, peers + "limit=2"},
		{"one by name", kubetest.Token, peers + "fieldSelector=metadata.name%3Db"},
		{"at least an old version", kubetest.Token,
			peers + "limit=500&resourceVersion=%d&resourceVersionMatch=NotOlderThan"},
		{"a version to come", kubetest.Token,
			peers + "limit=500&resourceVersion=99999999&resourceVersionMatch=NotOlderThan"},
		{"watch", kubetest.Token, peers + "watch=true&resourceVersion=%d&timeoutSeconds=5"},
		{"no right", kubetest.Token, "/apis/" + group + "/ippools"},
		{"no right to watch", kubetest.Token, "/apis/" + group + "/ippools?watch=true"},
		{"another token", "another", peers},
		{"nodes", kubetest.Token, "/api/v1/nodes?limit=500"},
	} {
		var got [2]answer
		for i, s := range servers {
			path := tc.path
			if strings.Contains(path, "resourceVersion=%d") {
				path = strings.Replace(path, "%d", fmt.Sprint(before[i]), 1)
			}
			got[i] = ask(t, s, tc.token, path)
		}
		for i := range got { // a stand-in has no Kind of its own for Calico's objects
			got[i].Kind = strings.TrimPrefix(strings.TrimPrefix(got[i].Kind, "Object"), "BGPPeer")
		}
		t.Logf("%s: %+v", tc.name, got[1])
		if got[0] != got[1] {
			t.Errorf("%s\nstand-in   %+v\nAPI server %+v", tc.name, got[0], got[1])
		}
	}
	for i, s := range servers {
		s.Compact()
		path := fmt.Sprintf("%swatch=true&resourceVersion=%d", peers, before[i])
		got := ask(t, s, kubetest.Token, path)
		// an API server that has just started says so while it fills its cache
		for end := time.Now().Add(time.Minute); got.Status == http.StatusTooManyRequests &&
			time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			got = ask(t, s, kubetest.Token, path)
		}
		if got.Event != "ERROR" || got.Code != http.StatusGone || got.Kind != "Status" ||
			got.Reason != "Expired" {
			t.Errorf("server %d, history is lost: %+v", i, got)
		}
	}
}
