package kubetest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The ServiceAccounts of the manifests, as an API server calls them: the one that Token stands for,
// and the one of ControllerToken.
const (
	Agent      = "system:serviceaccount:vpp-route-agent:vpp-route-agent"
	Controller = Agent + "-reflector-controller"
)

const (
	// AdminToken is that of an administrator, who may do all.
	AdminToken = "adm1n"
	// ControllerToken is Controller's.
	ControllerToken = "c0ntroller"
	// startTime is how long an API server may take to start, on a machine with much else to do.
	startTime = 3 * time.Minute
)

// FindReal looks for build/kube-apiserver in this folder and those above; "": there is none.
func FindReal() (program string) {
	dir, err := os.Getwd()
	for err == nil {
		program = filepath.Join(dir, "build", "kube-apiserver")
		if _, err := os.Stat(program); err == nil {
			return program
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// Real is a kube-apiserver with RBAC, on 127.0.0.1, that keeps its data in an etcd of the caller's.
// Clients reach it through a proxy, which can cut their connections. It has the methods of Server
// that an API server can be made to do.
type Real struct {
	t       testing.TB
	program string
	dir     string
	port    int
	etcd    string
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	admin   *http.Client
	proxy   *proxy
	rights  []string
}

// NewReal starts the program. It ends with the test.
func NewReal(t testing.TB, program, etcd string) *Real {
	t.Helper()
	r := &Real{t: t, program: program, dir: t.TempDir(), etcd: etcd}
	if err := r.prepare(); err != nil {
		t.Fatalf("kube-apiserver: %v", err)
	}
	t.Cleanup(r.close)
	if err := r.start(); err != nil {
		log, _ := os.ReadFile(r.file("log"))
		t.Fatalf("kube-apiserver: %v\n%s", err, log[max(0, len(log)-8000):])
	}
	t.Attr("part", "Kubernetes API server "+r.release())
	return r
}

func (r *Real) file(name string) string { return filepath.Join(r.dir, name) }

// prepare writes what the program reads, and finds a free port.
func (r *Real) prepare() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	tokens := fmt.Sprintf("%s,admin,1,\"system:masters\"\n%s,%s,2\n%s,%s,3\n", AdminToken, Token,
		Agent, ControllerToken, Controller)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.port = free.Addr().(*net.TCPAddr).Port
	free.Close()
	return errors.Join(os.WriteFile(r.file("tokens.csv"), []byte(tokens), 0o600),
		os.WriteFile(r.file("accounts.key"), pem.EncodeToMemory(&pem.Block{
			Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
}

// start runs the program until it is ready.
func (r *Real) start() error {
	log, err := os.OpenFile(r.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(r.program, "--etcd-servers", r.etcd, "--cert-dir", r.dir,
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(r.port),
		// the address of a Service that nobody asks for, and which must not be of loopback
		"--advertise-address", "192.0.2.1", "--endpoint-reconciler-type", "none",
		"--authorization-mode", "RBAC", "--token-auth-file", r.file("tokens.csv"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", r.file("accounts.key"),
		"--service-account-signing-key-file", r.file("accounts.key"),
		// pods need no account, and nodes get no taints
		"--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition")
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	r.process, r.ended = cmd, ended
	if r.proxy == nil {
		if r.proxy, err = newProxy(fmt.Sprintf("127.0.0.1:%d", r.port)); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-ended:
			return errors.New("it has ended")
		default:
		}
		err := r.connect()
		if err == nil {
			_, err = r.do(http.MethodGet, "/readyz", nil)
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it is not ready after %s: %w", startTime, err)
		}
	}
}

// connect trusts the certificate that the program has made.
func (r *Real) connect() error {
	if r.admin != nil {
		return nil
	}
	text, err := os.ReadFile(r.file("apiserver.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return errors.New("no certificate yet")
	}
	r.admin = &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return nil
}

func (r *Real) stop() {
	if r.process != nil {
		_ = r.process.Process.Kill()
		<-r.ended
	}
}

// Usage is what the program has used so far: processor time and resident memory, in bytes.
func (r *Real) Usage() (cpu time.Duration, resident int64) {
	r.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.process.Process.Pid))
	r.must(err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third on: proc(5)
	if len(fields) < 22 {
		r.must(fmt.Errorf("what is used cannot be read: %q", text))
		return 0, 0
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i-3], 10, 64)
		r.must(err)
		return n
	}
	const tick = time.Second / 100 // USER_HZ, of all architectures
	return time.Duration(number(14)+number(15)) * tick, number(24) * int64(os.Getpagesize())
}

func (r *Real) close() {
	r.stop()
	if r.proxy != nil {
		r.proxy.close()
	}
	if r.admin != nil {
		r.admin.CloseIdleConnections()
	}
}

// Compact has it end and start again: the new one's cache begins with what there is now, so that
// watches from before are Gone.
func (r *Real) Compact() {
	r.stop()
	r.proxy.cut()
	if err := r.start(); err != nil {
		r.t.Errorf("kube-apiserver: %v", err)
	}
}

// EndWatches cuts all connections of clients.
func (r *Real) EndWatches() { r.proxy.cut() }

// URL is where clients reach it.
func (r *Real) URL() string { return "https://" + r.proxy.listener.Addr().String() }

// CA is the authority of its certificate, in PEM form.
func (r *Real) CA() []byte {
	text, err := os.ReadFile(r.file("apiserver.crt"))
	if err != nil {
		r.t.Errorf("kube-apiserver: %v", err)
	}
	return text
}

// Kubeconfig writes a file with which the Agent reaches it, and returns its path.
func (r *Real) Kubeconfig() string {
	file, err := writeKubeconfig(r.t.TempDir(), r.URL(), "127.0.0.1", "token: "+Token, r.CA())
	if err != nil {
		r.t.Errorf("kube-apiserver: %v", err)
	}
	return file
}

// refused is an answer that is no success.
type refused struct {
	status int
	what   string
}

func (e *refused) Error() string { return e.what }

func isStatus(err error, status int) bool {
	var e *refused
	return errors.As(err, &e) && e.status == status
}

// do sends a request of the administrator's.
func (r *Real) do(method, path string, body any) (answer map[string]any, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequest(method, fmt.Sprintf("https://127.0.0.1:%d%s", r.port, path),
		bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+AdminToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.admin.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if resp.StatusCode/100 != 2 {
		return nil, &refused{resp.StatusCode, fmt.Sprintf("%s %s: %s: %.500s", method, path,
			resp.Status, text)}
	}
	_ = json.Unmarshal(text, &answer) // /readyz is none
	return answer, err
}

// must reports what an administrator cannot do. Writers have no error to return, as Server's.
func (r *Real) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Errorf("kube-apiserver: %v", err)
	}
}

func (r *Real) release() string {
	v, err := r.do(http.MethodGet, "/version", nil)
	r.must(err)
	return fmt.Sprint(v["gitVersion"])
}

// Version is the newest version.
func (r *Real) Version() int {
	list, err := r.do(http.MethodGet, "/api/v1/nodes?limit=1", nil)
	r.must(err)
	meta, _ := list["metadata"].(map[string]any)
	n, _ := strconv.Atoi(fmt.Sprint(meta["resourceVersion"]))
	return n
}

// Install has it know kinds of Calico, of any content, and waits until it does.
func (r *Real) Install(groupVersion string, plurals ...string) {
	group, version, _ := strings.Cut(groupVersion, "/")
	var all sync.WaitGroup
	for _, plural := range plurals {
		all.Go(func() { r.must(r.install(group, version, plural)) })
	}
	all.Wait()
	r.must(eventually("group "+groupVersion+" is known", func() (bool, error) {
		groups, err := r.do(http.MethodGet, "/apis/"+groupVersion, nil)
		resources, _ := groups["resources"].([]any)
		return len(resources) >= len(plurals), ignore(err, http.StatusNotFound)
	}))
}

func (r *Real) install(group, version, plural string) error {
	kind := kindOf(plural)
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	_, err := r.do(http.MethodPost, definitions, map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{"group": group, "scope": "Cluster",
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind),
				"kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{"name": version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": anything}}}},
	})
	if isStatus(err, http.StatusConflict) {
		err = r.serve(plural+"."+group, true)
	}
	if err != nil {
		return err
	}
	return eventually(plural+" are served", func() (bool, error) {
		_, err := r.do(http.MethodGet, "/apis/"+group+"/"+version+"/"+plural+"?limit=1", nil)
		return err == nil, ignore(err, http.StatusNotFound)
	})
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Uninstall has it forget a kind and its objects, and waits until it has.
func (r *Real) Uninstall(kind string) {
	_, err := r.do(http.MethodDelete, definitions+"/"+kind, nil)
	r.must(ignore(err, http.StatusNotFound))
	r.must(eventually(kind+" is gone", func() (bool, error) {
		_, err := r.do(http.MethodGet, definitions+"/"+kind, nil)
		return isStatus(err, http.StatusNotFound), ignore(err, http.StatusNotFound)
	}))
}

// Unserve has it not know a kind whose objects are kept, and waits until it does not.
func (r *Real) Unserve(kind string) {
	r.t.Helper()
	r.must(r.serve(kind, false))
	path, _ := place(kind)
	r.must(eventually(kind+" is not served", func() (bool, error) {
		_, err := r.do(http.MethodGet, path, nil)
		return isStatus(err, http.StatusNotFound), ignore(err, http.StatusNotFound)
	}))
}

func (r *Real) serve(kind string, on bool) error {
	crd, err := r.do(http.MethodGet, definitions+"/"+kind, nil)
	if err != nil {
		return err
	}
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		v.(map[string]any)["served"] = on
	}
	_, err = r.do(http.MethodPut, definitions+"/"+kind, crd)
	return err
}

// ignore returns err unless it is an answer with a status.
func ignore(err error, status int) error {
	if isStatus(err, status) {
		return nil
	}
	return err
}

// eventually tries until ok, or an error.
func eventually(what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if is, err := ok(); is || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("not so after a minute: " + what)
		}
	}
}

// kindOf is the Kind of a plural.
func kindOf(plural string) string {
	return map[string]string{
		"nodes": "Node", "pods": "Pod", "ippools": "IPPool", "bgppeers": "BGPPeer",
		"bgpconfigurations": "BGPConfiguration", "bgpfilters": "BGPFilter",
		"felixconfigurations": "FelixConfiguration", "clusterinformations": "ClusterInformation",
		"blockaffinities": "BlockAffinity", "ipamblocks": "IPAMBlock",
		"ipamhandles":        "IPAMHandle",
		"caliconodestatuses": "CalicoNodeStatus",
		"configmaps":         "ConfigMap", "leases": "Lease",
		"clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding",
		"roles": "Role", "rolebindings": "RoleBinding",
	}[plural]
}

// place is where the objects of a kind are, and their apiVersion.
func place(kind string) (path, apiVersion string) {
	plural, group, _ := strings.Cut(kind, ".")
	switch group {
	case "":
		return "/api/v1/" + plural, "v1"
	case "projectcalico.org":
		apiVersion = group + "/v3"
	default:
		apiVersion = group + "/v1"
	}
	return "/apis/" + apiVersion + "/" + plural, apiVersion
}

func pathOf(kind, namespace, name string) string {
	path, _ := place(kind)
	if namespace != "" {
		dir, plural := filepath.Split(path)
		path = dir + "namespaces/" + namespace + "/" + plural
	}
	return strings.TrimSuffix(path+"/"+name, "/")
}

// PutObject adds or replaces an object, and its status, if it has one. What an API server does not
// let change, a Pod's node, is changed by another object of the name.
func (r *Real) PutObject(kind string, object []byte) {
	r.t.Helper()
	var o map[string]any
	if err := json.Unmarshal(object, &o); err != nil {
		r.must(fmt.Errorf("%s: %w", kind, err))
		return
	}
	r.must(r.put(kind, headOf(object), o))
}

// put begins anew while others write the object, too.
func (r *Real) put(kind string, h head, o map[string]any) error {
	for {
		err := r.putOnce(kind, h, o)
		if !isStatus(err, http.StatusConflict) {
			return err
		}
	}
}

func (r *Real) putOnce(kind string, h head, o map[string]any) error {
	_, apiVersion := place(kind)
	plural, _, _ := strings.Cut(kind, ".")
	o["apiVersion"], o["kind"] = apiVersion, kindOf(plural)
	meta, _ := o["metadata"].(map[string]any)
	for _, its := range []string{"uid", "resourceVersion"} { // the API server gives its own
		delete(meta, its)
	}
	path := pathOf(kind, h.Metadata.Namespace, h.Metadata.Name)
	now, err := r.do(http.MethodGet, path, nil)
	if err := ignore(err, http.StatusNotFound); err != nil {
		return err
	}
	if kind == "pods" {
		spec, _ := o["spec"].(map[string]any)
		was, _ := now["spec"].(map[string]any)
		switch {
		case now != nil && was["nodeName"] != spec["nodeName"]:
			if err := r.delete(kind, h.Metadata.Namespace, h.Metadata.Name); err != nil {
				return err
			}
			now = nil
			fallthrough
		case now == nil:
			spec["containers"] = []any{map[string]any{"name": "a", "image": "a"}}
		default:
			o["spec"] = was
		}
	}
	status := o["status"]
	if now == nil {
		if err := r.addNamespace(h.Metadata.Namespace); err != nil {
			return err
		}
		now, err = r.do(http.MethodPost, pathOf(kind, h.Metadata.Namespace, ""), o)
	} else {
		meta["resourceVersion"] = versionOf(now)
		now, err = r.do(http.MethodPut, path, o)
	}
	if err != nil || status == nil || kind != "pods" && kind != "nodes" {
		return err
	}
	now["status"] = status
	_, err = r.do(http.MethodPut, path+"/status", now)
	return err
}

func (r *Real) addNamespace(name string) error {
	if name == "" {
		return nil
	}
	_, err := r.do(http.MethodPost, "/api/v1/namespaces", map[string]any{"apiVersion": "v1",
		"kind": "Namespace", "metadata": map[string]any{"name": name}})
	return ignore(err, http.StatusConflict)
}

func versionOf(o map[string]any) any {
	meta, _ := o["metadata"].(map[string]any)
	return meta["resourceVersion"]
}

// Object returns one, by "namespace/name" or name; nil: there is none.
func (r *Real) Object(kind, key string) json.RawMessage {
	r.t.Helper()
	namespace, name := splitKey(key)
	o, err := r.do(http.MethodGet, pathOf(kind, namespace, name), nil)
	r.must(ignore(err, http.StatusNotFound))
	if err != nil {
		return nil
	}
	text, err := json.Marshal(o)
	r.must(err)
	return text
}

// Objects are all of a kind, sorted by name.
func (r *Real) Objects(kind string) (all []json.RawMessage) {
	r.t.Helper()
	path, _ := place(kind)
	list, err := r.do(http.MethodGet, path, nil)
	r.must(ignore(err, http.StatusNotFound))
	items, _ := list["items"].([]any)
	for _, o := range items {
		text, err := json.Marshal(o)
		r.must(err)
		all = append(all, text)
	}
	return all
}

func splitKey(key string) (namespace, name string) {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", key
	}
	return namespace, name
}

// DeleteObject removes an object, by "namespace/name" or name.
func (r *Real) DeleteObject(kind, key string) {
	r.t.Helper()
	namespace, name := splitKey(key)
	r.must(ignore(r.delete(kind, namespace, name), http.StatusNotFound))
}

func (r *Real) delete(kind, namespace, name string) error {
	_, err := r.do(http.MethodDelete, pathOf(kind, namespace, name)+"?gracePeriodSeconds=0", nil)
	return err
}

// Allow has the Agent have nothing but these rights, such as "list nodes".
func (r *Real) Allow(rights []string) {
	r.rights = rights
	r.grant(rights)
}

// Deny takes a right away from those of Allow, or gives it back, and cuts all connections.
func (r *Real) Deny(right string, denied bool) {
	var left []string
	for _, one := range r.rights {
		if one != right || !denied {
			left = append(left, one)
		}
	}
	r.grant(left)
	r.EndWatches()
}

// grant writes the ClusterRole and its binding, and waits until the API server goes by them, since
// its authorizer reads them with a watch.
func (r *Real) grant(rights []string) {
	r.t.Helper()
	rules := []any{}
	for _, right := range rights {
		verb, kind, _ := strings.Cut(right, " ")
		plural, group, _ := strings.Cut(kind, ".")
		rules = append(rules, map[string]any{"apiGroups": []string{group},
			"resources": []string{plural}, "verbs": []string{verb}})
	}
	const rbac = ".rbac.authorization.k8s.io"
	meta := func() map[string]any { return map[string]any{"name": "vpp-route-agent"} }
	named := head{}
	named.Metadata.Name = "vpp-route-agent"
	r.must(errors.Join(
		r.put("clusterroles"+rbac, named, map[string]any{"metadata": meta(), "rules": rules}),
		r.put("clusterrolebindings"+rbac, named, map[string]any{"metadata": meta(),
			"roleRef": map[string]any{"apiGroup": rbac[1:], "kind": "ClusterRole",
				"name": "vpp-route-agent"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "vpp-route-agent",
				"namespace": "vpp-route-agent"}}})))
	allowed := map[string]bool{}
	for _, right := range rights {
		allowed[right] = true
	}
	r.must(eventually("the rights are known", func() (bool, error) {
		for _, right := range r.rights {
			is, err := r.allows(Agent, "", right)
			if err != nil || is != allowed[right] {
				return false, err
			}
		}
		return true, nil
	}))
}

// AwaitRight waits until a user has a right in a namespace, or has it no more:
// "get leases.coordination.k8s.io", "get configmaps/name".
func (r *Real) AwaitRight(user, namespace, right string, has bool) {
	r.t.Helper()
	r.must(eventually(fmt.Sprintf("%s: %s is %t", user, right, has), func() (bool, error) {
		is, err := r.allows(user, namespace, right)
		return is == has, err
	}))
}

// allows asks whether a user has a right.
func (r *Real) allows(user, namespace, right string) (bool, error) {
	verb, kind, _ := strings.Cut(right, " ")
	kind, name, _ := strings.Cut(kind, "/")
	plural, group, _ := strings.Cut(kind, ".")
	answer, err := r.do(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
			"spec": map[string]any{"user": user, "resourceAttributes": map[string]any{
				"verb": verb, "resource": plural, "group": group, "name": name,
				"namespace": namespace}}})
	status, _ := answer["status"].(map[string]any)
	return status["allowed"] == true, err
}

// Reset removes all objects of kinds that a test may have left, and installs nothing. "ns/pods" are
// those of a namespace.
func (r *Real) Reset(kinds ...string) {
	r.t.Helper()
	for _, kind := range kinds {
		if kind == "pods" { // of all namespaces: there is no such request
			pods, err := r.do(http.MethodGet, "/api/v1/pods", nil)
			r.must(err)
			items, _ := pods["items"].([]any)
			for _, p := range items {
				text, _ := json.Marshal(p)
				r.DeleteObject(kind, keyOf(text))
			}
			continue
		}
		namespace, kind := splitKey(kind)
		_, err := r.do(http.MethodDelete, pathOf(kind, namespace, ""), nil)
		r.must(ignore(err, http.StatusNotFound))
	}
}

// proxy passes connections on and can cut them.
type proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	closed bool
}

func newProxy(to string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, conns: map[net.Conn]bool{}}
	p.running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			if p.closed {
				in.Close()
				out.Close()
			}
			p.conns[in], p.conns[out] = true, true
			p.mu.Unlock()
			p.running.Go(func() { p.pass(in, out) })
			p.running.Go(func() { p.pass(out, in) })
		}
	})
	return p, nil
}

func (p *proxy) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	from.Close()
	to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, from)
	delete(p.conns, to)
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cut()
	p.running.Wait()
}
