package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/reflectors"
)

// controllerSettings are the settings of `run` that the controller takes.
var controllerSettings = append([]string{"node-name", "metrics-listen", "tls-cert-file",
	"tls-key-file", "tls-client-ca-file", "plaintext", "log-level", "log-format"},
	deskSettings...)

// defaultControllerListen is beside that of an agent on the same host.
const defaultControllerListen = "127.0.0.1:9180"

func reflectorControllerCommand() *cobra.Command {
	var kubeconfig string
	c := &cobra.Command{
		Use:   controller,
		Short: "Run the controller of route reflectors until SIGTERM",
		Long: `Run the controller of route reflectors until SIGTERM or SIGINT. It moves the cluster
from the mesh to route reflectors or back, and replaces reflectors, as "reflectors migrate" and
"set" say. Until then it changes nothing of Calico's. Agents take part with --publish-status.

Several controllers may run, on any hosts: one leads, and another takes over when it ends. Agents
need none. docs/reflectors.md describes the steps and what each waits for.

In a pod, or with --kubeconfig, Nodes of Kubernetes count, too: one that is cordoned, not ready or
tainted gives its role to another, or does not get it.

It works in etcd, or with --datastore-type kubernetes in the Kubernetes datastore; in etcd nothing
is written to Kubernetes.

Settings come from the same places as those of "run".`,
		Example: `  vpp-route-agent reflector-controller --etcd-endpoints https://10.0.0.5:2379
  vpp-route-agent reflector-controller --config /etc/vpp-route-agent/agent.yaml \
    --metrics-listen 127.0.0.1:9180
  vpp-route-agent reflector-controller --datastore-type kubernetes --kubeconfig admin.conf`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := settingsOf(cmd)
			if errors.Is(err, errInterrupted) {
				return nil
			}
			if err != nil {
				return usageError{err}
			}
			cfg.forReflectors()
			cfg.metricsListen = controllerListen(cfg, cmd.Flags())
			outliveReader()
			log := newLogger(os.Stderr, cfg)
			defer log.end()
			return runController(cmd.Context(), cfg, kubeconfig, log.Logger)
		},
	}
	addKubeconfig(c.Flags(), &kubeconfig)
	addMissing(c.Flags(), controllerSettings)
	f := c.Flags().Lookup("metrics-listen")
	f.DefValue = defaultControllerListen
	f.Usage = "address of /metrics, /healthz and /readyz; \"off\" for none"
	return c
}

// controllerListen is where the controller's metrics are. The default of an agent, also in the file
// that both may read, is the agent's; a flag says what it says.
func controllerListen(cfg config, flags *pflag.FlagSet) string {
	if cfg.texts["--metrics-listen"] == defaultMetricsListen && !flags.Changed("metrics-listen") {
		return defaultControllerListen
	}
	return cfg.metricsListen
}

func runController(ctx context.Context, cfg config, kubeconfig string, log *slog.Logger) error {
	store, err := cfg.kubernetesStore()
	if err != nil {
		return usageError{err}
	}
	nodes, err := kubernetesNodes(store, kubeconfig, log)
	if err != nil {
		return usageError{err}
	}
	c, err := reflectors.NewController(reflectors.ControllerConfig{
		Etcd: cfg.etcd(), Datastore: store, Name: cfg.nodeName, Version: version,
		Kubernetes: nodes, Log: log,
	})
	if err != nil {
		return usageError{err}
	}
	group, ctx := errgroup.WithContext(ctx)
	if cfg.metricsListen != "" {
		l, err := cfg.listenHealth()
		if err != nil {
			return err
		}
		defer l.Close()
		group.Go(func() error { return agent.Serve(ctx, l, c.HealthHandler(), log) })
	}
	if nodes != nil {
		group.Go(func() error { return nodes.Run(ctx) })
	}
	group.Go(func() error { return c.Run(ctx) })
	log.Info("started", "version", version)
	err = group.Wait()
	log.Info("stopped; the cluster stays as it is")
	return err
}

// addMissing adds the flags of settings that are not there yet.
func addMissing(flags *pflag.FlagSet, names []string) {
	addSettings(flags, func(s setting) bool {
		return slices.Contains(names, s.flag) && flags.Lookup(s.flag) == nil
	})
}

func addKubeconfig(f *pflag.FlagSet, kubeconfig *string) {
	f.StringVar(kubeconfig, "kubeconfig", "", "file by which Kubernetes is reached, whose Nodes "+
		"count; \"off\": none do; default: in a pod its own, else none")
}

// noNodes as a kubeconfig has no Nodes count.
const noNodes = "off"

// kubernetesNodes are the Nodes that count; nil: none do. In the Kubernetes datastore they are its
// own, unless none shall count.
func kubernetesNodes(store *reflectors.KubernetesConfig, kubeconfig string, log *slog.Logger) (
	*kubernetes.Nodes, error) {
	if store != nil && kubeconfig != noNodes {
		return kubernetes.NewNodes(store.Client, log), nil
	}
	client, err := kubernetesClient(kubeconfig)
	if client == nil || err != nil {
		return nil, err
	}
	return kubernetes.NewNodes(client, log), nil
}

// kubernetesClient reaches the Nodes that count; nil: none do.
func kubernetesClient(kubeconfig string) (*kubernetes.Client, error) {
	if kubeconfig == noNodes || kubeconfig == "" && !kubernetes.InPod() {
		return nil, nil
	}
	client, err := kubernetes.NewClient(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return client, nil
}
