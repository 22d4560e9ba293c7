// Package kubernetes follows objects of the Kubernetes API, writes one at a time, and has one of
// several processes lead. It owns the connection: credentials, retries, and what is known while the
// API server is away. It does not know what an object is wanted for.
package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout is long: a list of many objects takes an API server a while.
const requestTimeout = 20 * time.Second

// userAgent names us in the API server's logs.
const userAgent = "vpp-route-agent"

// Client talks to one API server. It has no clientset: Nodes have Kubernetes' type, and all other
// objects are JSON.
type Client struct {
	rest   *rest.RESTClient
	base   string // begins all URLs
	codec  runtime.ParameterCodec
	server string
	web    *http.Client
	// Timeout bounds the wait for an answer. It may be changed before the first request.
	Timeout time.Duration
}

// InPod reports whether this process runs in a pod.
func InPod() bool {
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" && os.Getenv("KUBERNETES_SERVICE_PORT") != ""
}

// PodNamespace is that of the pod that this process runs in; "": it runs in none.
func PodNamespace() string {
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if !InPod() || err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// NewClient connects with a kubeconfig file, or without one as the pod that it runs in. It makes
// no request.
func NewClient(kubeconfig string) (*Client, error) {
	cfg, err := rest.InClusterConfig()
	if kubeconfig != "" {
		cfg, err = fromFile(kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	return newClient(cfg)
}

// ClientConfig says how to reach an API server, as calico-node's variables do. Each field that is
// given goes before what the kubeconfig or the pod says.
type ClientConfig struct {
	Kubeconfig string // file, or several with a colon between; "": none
	Context    string // of the kubeconfig
	Server     string // "https://host:port"
	CAFile     string
	CertFile   string
	KeyFile    string
	Token      string
	Insecure   bool // the server's certificate is not checked
}

// NewClientFor connects as c says: with its kubeconfig, as the pod that it runs in, or with nothing
// but what c has. It makes no request.
func NewClientFor(c ClientConfig) (*Client, error) {
	if c.Kubeconfig == "" && InPod() {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, err
		}
		if c.Server != "" {
			cfg.Host = c.Server
		}
		if c.CAFile != "" {
			cfg.CAFile = c.CAFile
		}
		if c.CertFile != "" {
			cfg.CertFile, cfg.KeyFile = c.CertFile, c.KeyFile
		}
		if c.Token != "" {
			cfg.BearerToken, cfg.BearerTokenFile = c.Token, ""
		}
		if c.Insecure {
			cfg.CAFile, cfg.Insecure = "", true
		}
		return newClient(cfg)
	}
	rules := &clientcmd.ClientConfigLoadingRules{}
	if files := filepath.SplitList(c.Kubeconfig); len(files) > 1 {
		rules.Precedence = files
	} else {
		rules.ExplicitPath = c.Kubeconfig
	}
	over := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
	over.ClusterInfo.Server, over.ClusterInfo.CertificateAuthority = c.Server, c.CAFile
	over.ClusterInfo.InsecureSkipTLSVerify = c.Insecure
	over.AuthInfo.ClientCertificate, over.AuthInfo.ClientKey = c.CertFile, c.KeyFile
	over.AuthInfo.Token = c.Token
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, over).ClientConfig()
	if err != nil {
		return nil, err
	}
	return newClient(cfg)
}

// NewDefaultClient connects as kubectl would.
func NewDefaultClient() (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.MigrationRules, rules.WarnIfAllMissing = nil, false // else it would write files, and log
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(rules.GetLoadingPrecedence(), ", "), err)
	}
	return newClient(cfg)
}

func fromFile(file string) (*rest.Config, error) {
	read, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(read); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*read, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cfg, nil
}

func newClient(cfg *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.UserAgent = userAgent
	cfg.WarningHandler = rest.NoWarnings{} // they would go to stderr in a format of their own
	web, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	// never send a token to another host
	web.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	client, err := rest.RESTClientForConfigAndClient(cfg, web)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{
		rest: client, base: strings.TrimSuffix(base.String(), "/"),
		codec: runtime.NewParameterCodec(scheme), server: cfg.Host, web: web,
		Timeout: requestTimeout,
	}, nil
}

// cordonNote is on a Node that was cordoned by Cordon, and says why. Without it the cordon is
// somebody else's.
const cordonNote = "vpp-route-agent/cordon"

var (
	errNotOurs = errors.New("somebody else has cordoned it: uncordon it with kubectl")
	errNotSo   = errors.New("it is not cordoned")
)

// Cordon keeps new pods from a Node, and marks the Node for Uncordon. One that is cordoned already
// stays as it is, and whose it was.
func (c *Client) Cordon(ctx context.Context, name, reason string) error {
	return c.patch(ctx, name, func(n *corev1.Node) (map[string]any, error) {
		if n.Spec.Unschedulable {
			return nil, nil
		}
		return cordonPatch(n, true, &reason), nil
	})
}

// Uncordon undoes Cordon, and nobody else's.
func (c *Client) Uncordon(ctx context.Context, name string) error {
	return c.patch(ctx, name, func(n *corev1.Node) (map[string]any, error) {
		_, ours := n.Annotations[cordonNote]
		switch {
		case ours:
			return cordonPatch(n, false, nil), nil
		case n.Spec.Unschedulable:
			return nil, errNotOurs
		}
		return nil, errNotSo
	})
}

// cordonPatch changes mark and cordon at once, if the Node is as it was read.
func cordonPatch(n *corev1.Node, cordoned bool, note *string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{
			"resourceVersion": n.ResourceVersion,
			"annotations":     map[string]*string{cordonNote: note},
		},
		"spec": map[string]any{"unschedulable": cordoned},
	}
}

// patch writes what change makes of a Node; nil: nothing. It begins anew when another has written
// meanwhile.
func (c *Client) patch(ctx context.Context, name string,
	change func(*corev1.Node) (map[string]any, error)) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for {
		n := &corev1.Node{}
		if err := c.rest.Get().Resource("nodes").Name(name).Do(ctx).Into(n); err != nil {
			return c.explain(err)
		}
		wanted, err := change(n)
		if wanted == nil || err != nil {
			return err
		}
		body, err := json.Marshal(wanted)
		if err != nil {
			return err
		}
		err = c.rest.Patch(types.MergePatchType).Resource("nodes").Name(name).Body(body).
			Do(ctx).Error()
		if !apierrors.IsConflict(err) {
			return c.explain(err)
		}
	}
}

// explain names the API server, without the long address of the request.
func (c *Client) explain(err error) error {
	if err == nil {
		return nil
	}
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Errorf("the Kubernetes API at %s: %w", c.server, c.why(err))
}

// why says of a request that ran into its deadline how long an answer was waited for.
func (c *Client) why(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return c.noAnswer()
	}
	return err
}

func (c *Client) noAnswer() error { return fmt.Errorf("no answer within %s", c.Timeout) }

// list and watch are what a reflector of client-go asks for.
func (c *Client) list(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	all := &corev1.NodeList{}
	err := c.rest.Get().Resource("nodes").VersionedParams(&o, c.codec).Do(ctx).Into(all)
	return all, c.explain(err)
}

// Nodes returns all Nodes as they are now, by name. Since when one is not ready, the API server
// says.
func (c *Client) Nodes(ctx context.Context) (map[string]Node, error) {
	listed, err := c.list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]Node{}
	for _, n := range listed.Items {
		since := Node{}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				since.NotReady = condition.LastTransitionTime.Time
			}
		}
		all[n.Name] = nodeOf(&n, since, time.Now())
	}
	return all, nil
}

// watch waits for the answer as long as for any other, and for events without limit.
func (c *Client) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(c.Timeout, cancel)
	o.Watch = true
	w, err := c.rest.Get().Resource("nodes").VersionedParams(&o, c.codec).Watch(ctx)
	if !late.Stop() { // it may have answered in that moment: the watch has ended nonetheless
		if err == nil {
			w.Stop()
		}
		err = c.noAnswer()
	}
	if err != nil {
		cancel()
		return nil, c.explain(err)
	}
	return ending{w, cancel}, nil
}

// ending ends the request with its watch.
type ending struct {
	watch.Interface
	cancel func()
}

func (e ending) Stop() {
	e.Interface.Stop()
	e.cancel()
}

// Close ends connections that no request uses.
func (c *Client) Close() { c.web.CloseIdleConnections() }
