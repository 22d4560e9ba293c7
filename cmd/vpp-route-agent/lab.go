package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/demo"
	"vpp-route-agent/internal/reflectors"
)

// labCommand writes Calico's data where there is no calicoctl and no CNI plugin: in labs, the demo
// and interoperation tests.
func labCommand() *cobra.Command {
	var l lab
	c := &cobra.Command{
		Use: "lab", Short: "Write Calico's data into a lab's datastore", Hidden: true,
		Long: `Write Calico's data into a lab's etcd, as calicoctl, the CNI plugin and Calico's
IPAM would. With --datastore-type kubernetes it goes to the Kubernetes API, where a workload is a
Pod, and stays on its node. Not for a cluster that runs Calico: no kubelet is asked, and workloads
appear in the datastore only.`,
		Example: `  vpp-route-agent lab apply -f pool.yml
  vpp-route-agent lab attach node-1 web
  vpp-route-agent lab attach node-1 db 10.1.0.7
  vpp-route-agent lab borrow node-2 cache node-1
  vpp-route-agent lab move web node-2
  vpp-route-agent lab release web
  vpp-route-agent lab release-block 10.1.0.64/26`,
	}
	endpoint := cmp.Or(os.Getenv("CALICO_ETCD_ENDPOINTS"), os.Getenv("ETCD_ENDPOINTS"),
		"http://127.0.0.1:2379")
	c.PersistentFlags().StringVar(&l.endpoint, "etcd-endpoints", endpoint,
		"URL of the lab's etcd (environment: ETCD_ENDPOINTS)")
	c.PersistentFlags().Lookup("etcd-endpoints").DefValue = shownEndpoints(endpoint) // for --help
	addMissing(c.PersistentFlags(), labSettings)
	c.AddCommand(l.apply(), l.delete(), l.attach(), l.borrow(), l.move(), l.release(),
		l.claimBlock(), l.releaseBlock(), l.etcd(), l.kubernetes())
	return c
}

// labSettings are the settings of `run` that say how the Kubernetes API is reached.
var labSettings = []string{"datastore-type", "kubeconfig", "k8s-current-context",
	"k8s-api-endpoint", "k8s-ca-file", "k8s-cert-file", "k8s-key-file",
	"k8s-insecure-skip-tls-verify", "calico-api-group"}

// lab is what its subcommands share.
type lab struct {
	endpoint string
	asJSON   bool
}

// in runs f on the lab's data.
func (l *lab) in(cmd *cobra.Command, f func(*calicotest.Cluster) error) error {
	store, err := l.kubernetesStore(cmd)
	if err != nil {
		return err
	}
	where := "the etcd at " + l.endpoint
	if store != nil {
		where = "the Kubernetes API"
	}
	defer sayWhenSlow(func() string { return where })()
	var cluster *calicotest.Cluster
	if store != nil {
		cluster = calicotest.NewKubernetesCluster(store.Client, store.Group)
	} else if strings.Contains(l.endpoint, "@") { // errors of the client would quote it
		return usageError{fmt.Errorf("--etcd-endpoints %s must be scheme, host and port only",
			shownEndpoints(l.endpoint))}
	} else if cluster, err = calicotest.Connect(cmd.Context(), l.endpoint, nil); err != nil {
		return err
	}
	return errors.Join(f(cluster), cluster.Close())
}

// kubernetesStore is where the data are; nil: they are in etcd.
func (*lab) kubernetesStore(cmd *cobra.Command) (*reflectors.KubernetesConfig, error) {
	if cmd.Flags().Changed("etcd-endpoints") {
		return nil, nil
	}
	cfg, err := settingsOf(cmd)
	if err != nil {
		return nil, usageError{err}
	}
	if cfg.datastoreType != inKubernetes {
		return nil, nil
	}
	store, err := cfg.kubernetesStore()
	if err == nil && store.Group == "" {
		store.Group, err = kubernetes.FindGroup(cmd.Context(), store.Client)
	}
	return store, err
}

// arguments demands so many of them; otherwise the command was called wrongly.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError{fmt.Errorf("usage: %s", cmd.UseLine())}
		}
		return nil
	}
}

func (l *lab) apply() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "apply -f FILE|-", Short: "Create or replace resources in calicoctl's YAML",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := readFileOr(cmd, file)
			if err != nil {
				return usageError{err}
			}
			return l.in(cmd, func(cluster *calicotest.Cluster) error {
				applied, err := cluster.Apply(cmd.Context(), text)
				for _, name := range applied {
					fmt.Fprintf(cmd.OutOrStdout(), "applied %s\n", name)
				}
				return err
			})
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "file with one or several resources; - for "+
		"standard input")
	return c
}

// change completes a command that changes the lab's data. Its do returns what has happened.
func (l *lab) change(c *cobra.Command,
	do func(context.Context, cluster, []string) (string, error)) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return l.in(cmd, func(c cluster) error {
			done, err := do(cmd.Context(), c, args)
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), done)
			}
			return err
		})
	}
	return c
}

func (l *lab) delete() *cobra.Command {
	return l.change(&cobra.Command{
		Use: "delete KIND NAME", Short: "Delete a resource; a WorkloadEndpoint by NAMESPACE/NAME",
		Args: arguments(2, 2),
	}, func(ctx context.Context, c cluster, args []string) (string, error) {
		return fmt.Sprintf("deleted %s(%s)\n", args[0], args[1]), c.Delete(ctx, args[0], args[1])
	})
}

func (l *lab) claimBlock() *cobra.Command {
	return l.change(&cobra.Command{
		Use: "claim-block NODE CIDR", Short: "Make a block a node's", Args: withBlock(2),
	}, func(ctx context.Context, c cluster, args []string) (string, error) {
		cidr := netip.MustParsePrefix(args[1]).Masked()
		return fmt.Sprintf("%s is a block of %s\n", cidr, args[0]), c.ClaimBlock(ctx, args[0], cidr)
	})
}

func (l *lab) releaseBlock() *cobra.Command {
	return l.change(&cobra.Command{
		Use: "release-block CIDR", Short: "Take a block from its node", Args: withBlock(1),
	}, func(ctx context.Context, c cluster, args []string) (string, error) {
		cidr := netip.MustParsePrefix(args[0]).Masked()
		owner, err := c.ReleaseBlock(ctx, cidr)
		return fmt.Sprintf("%s is no longer a block of %s\n", cidr, owner), err
	})
}

// withBlock demands n arguments, of which the last is a prefix.
func withBlock(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := arguments(n, n)(cmd, args); err != nil {
			return err
		}
		if _, err := netip.ParsePrefix(args[n-1]); err != nil {
			return usageError{fmt.Errorf("%q is not a prefix", args[n-1])}
		}
		return nil
	}
}

func (l *lab) attach() *cobra.Command {
	return l.workload(&cobra.Command{
		Use:   "attach NODE WORKLOAD [ADDRESS|POOL]",
		Short: "Start a workload: an address from the node's blocks, and an endpoint",
		Long: `Start a workload: an address from the node's blocks, and an endpoint. As in Calico
the node claims another block when its own are full, and borrows when there is none. A given
address may be in another node's block.`,
		Args: arguments(2, 3),
	}, "attached", func(ctx context.Context, c cluster, args []string) (workload, error) {
		from := ""
		if len(args) == 3 {
			from = args[2]
		}
		return c.Attach(ctx, args[0], args[1], from)
	})
}

func (l *lab) borrow() *cobra.Command {
	return l.workload(&cobra.Command{
		Use:   "borrow NODE WORKLOAD OWNER",
		Short: "Start a workload with an address from a block of node OWNER",
		Args:  arguments(3, 3),
	}, "attached", func(ctx context.Context, c cluster, args []string) (workload, error) {
		return c.Borrow(ctx, args[0], args[1], args[2])
	})
}

func (l *lab) move() *cobra.Command {
	return l.workload(&cobra.Command{
		Use:   "move WORKLOAD NODE",
		Short: "Move a workload to another node, where it keeps its address",
		Args:  arguments(2, 2),
	}, "moved", func(ctx context.Context, c cluster, args []string) (workload, error) {
		return c.Move(ctx, args[0], args[1])
	})
}

func (l *lab) release() *cobra.Command {
	return l.workload(&cobra.Command{
		Use: "release WORKLOAD", Short: "End a workload and free its address",
		Args: arguments(1, 1),
	}, "released", func(ctx context.Context, c cluster, args []string) (workload, error) {
		return c.Release(ctx, args[0])
	})
}

type (
	cluster  = *calicotest.Cluster
	workload = calicotest.Workload
)

// workload completes a command that does something to a workload and prints it.
func (l *lab) workload(c *cobra.Command, done string,
	do func(context.Context, cluster, []string) (workload, error)) *cobra.Command {
	outputFlag(c, &l.asJSON)
	return l.change(c, func(ctx context.Context, c cluster, args []string) (string, error) {
		w, err := do(ctx, c, args)
		if err != nil {
			return "", err
		}
		if l.asJSON {
			var b strings.Builder
			err := printJSON(&b, w)
			return b.String(), err
		}
		borrowed := ""
		if w.Borrowed {
			borrowed = ", borrowed"
		}
		return fmt.Sprintf("%s %s: %s on %s (block %s%s)\n",
			done, w.Name, w.Address, w.Node, w.Block, borrowed), nil
	})
}

func (l *lab) etcd() *cobra.Command {
	var at demo.Datastore
	c := &cobra.Command{
		Use: "etcd", Short: "Run an etcd for a lab until SIGTERM", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.ServeEtcd(cmd.Context(), at)
		},
	}
	c.Flags().StringVar(&at.Listen, "listen", "127.0.0.1:2379", "address and port for clients")
	c.Flags().StringVar(&at.Dir, "data-dir", "", "where the data are kept; empty: a "+
		"temporary folder")
	c.Flags().StringVar(&at.Socket, "socket", "", "unix socket for clients that cannot reach "+
		"that address; empty: none")
	c.Flags().StringVar(&at.Kubernetes, "kubernetes", "", "address and port of a stand-in for the "+
		"Kubernetes API that has what is in the etcd; empty: none")
	c.Flags().StringVar(&at.KubeconfigDir, "kubeconfig-dir", ".", "folder for the kubeconfig of "+
		"--kubernetes")
	return c
}

func (l *lab) kubernetes() *cobra.Command {
	var listen, dir string
	c := &cobra.Command{
		Use: "kubernetes", Args: arguments(0, 0),
		Short: "Run a stand-in for the Kubernetes API for a lab until SIGTERM",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.ServeKubernetes(cmd.Context(), listen, dir)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:6443", "address and port for clients")
	c.Flags().StringVar(&dir, "data-dir", ".", "where the objects are kept, with a kubeconfig")
	return c
}
