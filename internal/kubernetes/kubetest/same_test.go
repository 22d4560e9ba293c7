package kubetest_test

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
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

// call is a request of an agent's.
type call struct {
	name, token, path      string
	method, kind, contents string // "": GET
}

// answer is what of an answer a client relies on.
type answer struct {
	Status  int
	Kind    string
	Reason  string
	Message string // without versions
	Code    int
	Items   int
	More    bool   // there is another page
	Events  string // of a watch: the first, or all to the mark after those that there are
	Spec    string // of an object
}

var versions = regexp.MustCompile(`\b\d{2,}\b`)

// ask sends a request and reads the answer, or the first events of a watch.
func ask(t *testing.T, s server, c call) (a answer, again string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), cmp.Or(c.method, http.MethodGet),
		s.URL()+c.path, strings.NewReader(c.contents))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", cmp.Or(c.kind, "application/json"))
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	var text []byte
	if strings.Contains(c.path, "watch=true") && a.Status == http.StatusOK {
		a.Events, text = events(resp.Body, strings.Contains(c.path, "sendInitialEvents"))
	} else {
		text, _ = io.ReadAll(resp.Body)
	}
	var body struct {
		Kind, Reason, Message string
		Code                  int
		Metadata              struct{ Continue string }
		Items                 []json.RawMessage
		Spec                  json.RawMessage
	}
	_ = json.Unmarshal(text, &body)
	a.Kind, a.Reason, a.Code = body.Kind, body.Reason, body.Code
	a.Message = versions.ReplaceAllString(body.Message, "N")
	a.Items, a.More, a.Spec = len(body.Items), body.Metadata.Continue != "", string(body.Spec)
	return a, body.Metadata.Continue
}

// events reads one, or all to the mark after those that there are. last is of the last.
func events(stream io.Reader, toMark bool) (all string, last json.RawMessage) {
	for lines := bufio.NewReader(stream); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return all + err.Error(), last
		}
		var e struct {
			Type   string
			Object json.RawMessage
		}
		var o struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
		_ = json.Unmarshal(line, &e)
		_ = json.Unmarshal(e.Object, &o)
		last = e.Object
		mark := o.Metadata.Annotations["k8s.io/initial-events-end"]
		all += strings.TrimSpace(e.Type+" "+o.Metadata.Name+mark) + ";"
		if !toMark || mark != "" || e.Type == "ERROR" {
			return all, last
		}
	}
}

// What the agent relies on is the same of the stand-in and of an API server, down to the words.
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
	standIn := kubetest.NewServer(t)
	standIn.Stream()
	servers := [2]server{standIn, kubetest.NewReal(t, program, e.Endpoint())}
	for i, s := range servers {
		s.Install(group, "bgppeers", "ippools")
		rights := []string{"list nodes", "watch nodes", "list bgpfilters" + crd,
			"get configmaps", "create configmaps", "patch configmaps",
			"create leases.coordination.k8s.io", "patch leases.coordination.k8s.io"}
		for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
			rights = append(rights, verb+" bgppeers"+crd)
		}
		s.Allow(rights)
		before[i] = s.Version()
		for _, name := range []string{"a", "b", "c"} {
			s.PutObject("bgppeers"+crd, fmt.Appendf(nil,
				`{"metadata":{"name":%q},"spec":{"asNumber":65000}}`, name))
		}
		s.PutObject("nodes", []byte(`{"metadata":{"name":"n"}}`))
		s.PutObject("configmaps", []byte(`{"metadata":{"namespace":"ns","name":"m"}}`))
	}
	const (
		all    = "/apis/" + group + "/bgppeers"
		peers  = all + "?"
		maps   = "/api/v1/namespaces/ns/configmaps"
		leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
		config = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`
		merge  = "application/merge-patch+json"
		marks  = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true"
	)
	get := func(name, path string) call {
		return call{name: name, token: kubetest.Token, path: path}
	}
	write := func(name, method, path, kind, contents string) call {
		return call{name, kubetest.Token, path, method, kind, contents}
	}
	peer := func(name, more string) string {
		return `{"apiVersion":"` + group + `","kind":"BGPPeer","metadata":{"name":"` + name + `"` +
			more + `},"spec":{"asNumber":65001}}`
	}
	for _, c := range []call{
		get("list", peers),
		get("a page", peers+"limit=2"),
		get("one by name", peers+"fieldSelector=metadata.name%3Db"),
		get("at least an old version",
			peers+"limit=500&resourceVersion=%d&resourceVersionMatch=NotOlderThan"),
		get("a version to come",
			peers+"limit=500&resourceVersion=99999999&resourceVersionMatch=NotOlderThan"),
		get("watch", peers+"watch=true&resourceVersion=%d&timeoutSeconds=5"),
		get("a watch that lists", peers+marks+"&resourceVersionMatch=NotOlderThan"),
		get("one that lists at least a version",
			peers+marks+"&resourceVersionMatch=NotOlderThan&resourceVersion=%d"),
		get("one that lists and does not say from where", peers+marks),
		get("no such kind", "/apis/"+group+"/bgpfilters"),
		get("no right", "/apis/"+group+"/ippools"),
		get("no right to watch", "/apis/"+group+"/ippools?watch=true"),
		get("no right to get", "/api/v1/nodes/n"),
		get("no right in a namespace", maps),
		{name: "another token", token: "another", path: peers},
		get("nodes", "/api/v1/nodes?limit=500"),
		get("get", all+"/a"),
		get("get what is not there", all+"/none"),
		get("get what is not there in a namespace", maps+"/none"),
		write("create", "POST", all, "", peer("d", "")),
		write("create what is there", "POST", all, "", peer("d", "")),
		write("create with a name that is none", "POST", all, "", peer("A_B", "")),
		write("create what is no JSON", "POST", all, "", "{"),
		write("no right to create", "POST", "/apis/"+group+"/ippools", "", peer("d", "")),
		write("create in a namespace", "POST", maps, "", config),
		write("the same again", "POST", maps, "", config),
		write("a Lease", "POST", leases, "",
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"},
			"spec":{}}`),
		write("patch", "PATCH", all+"/d", merge, `{"spec":{"asNumber":null,"node":"n"}}`),
		write("patch another version", "PATCH", all+"/d", merge,
			`{"metadata":{"resourceVersion":"1"},"spec":{"node":"m"}}`),
		write("patch what is not there", "PATCH", all+"/none", merge, `{}`),
		write("patch a Lease that is not there", "PATCH", leases+"/none", merge, `{}`),
		write("patch what is not there in a namespace", "PATCH", maps+"/none", merge, `{}`),
		write("a patch that is no JSON", "PATCH", all+"/d", merge, `{`),
		write("a patch of no kind", "PATCH", all+"/d", "application/json", `{}`),
		write("patch another version in a namespace", "PATCH", maps+"/m", merge,
			`{"metadata":{"resourceVersion":"1"},"data":{"a":"b"}}`),
		write("no right to patch", "PATCH", "/api/v1/nodes/n", merge, `{}`),
		write("delete another version", "DELETE", all+"/d", "",
			`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"1"}}`),
		write("delete", "DELETE", all+"/d", "", ""),
		write("delete what is not there", "DELETE", all+"/d", "", ""),
		write("no right to delete", "DELETE", maps+"/m", "", ""),
	} {
		var got [2]answer
		for i, s := range servers {
			one := c
			if strings.Contains(c.path, "resourceVersion=%d") {
				one.path = strings.Replace(c.path, "%d", fmt.Sprint(before[i]), 1)
			}
			got[i], _ = ask(t, s, one)
		}
		for i := range got { // a stand-in has no Kind of its own for Calico's objects
			got[i].Kind = strings.TrimPrefix(strings.TrimPrefix(got[i].Kind, "Object"), "BGPPeer")
		}
		t.Logf("%s: %+v", c.name, got[1])
		if got[0] != got[1] {
			t.Errorf("%s\nstand-in   %+v\nAPI server %+v", c.name, got[0], got[1])
		}
	}
	for i, s := range servers {
		s.Compact()
		c := get("", fmt.Sprintf("%swatch=true&resourceVersion=%d", peers, before[i]))
		got, _ := ask(t, s, c)
		// an API server that has just started says so while it fills its cache
		for end := time.Now().Add(time.Minute); got.Status == http.StatusTooManyRequests &&
			time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			got, _ = ask(t, s, c)
		}
		t.Logf("history is lost: %+v", got)
		if got.Events != "ERROR;" || got.Code != http.StatusGone || got.Kind != "Status" ||
			got.Reason != "Expired" || got.Message != "too old resource version: N (N)" {
			t.Errorf("server %d, history is lost: %+v", i, got)
		}
	}
	// a list whose next page comes too late
	var late [2]answer
	for i, s := range servers {
		_, next := ask(t, s, get("", peers+"limit=2"))
		s.PutObject("bgppeers"+crd, []byte(`{"metadata":{"name":"z"}}`))
		if s == server(standIn) {
			standIn.Compact()
		} else if _, err := e.Client().Compact(t.Context(), int64(s.Version())); err != nil {
			t.Fatal(err)
		}
		late[i], _ = ask(t, s, get("", peers+"limit=2&continue="+url.QueryEscape(next)))
	}
	t.Logf("a page that comes too late: %+v", late[1])
	if late[0] != late[1] {
		t.Errorf("a page that comes too late\nstand-in   %+v\nAPI server %+v", late[0], late[1])
	}
}
