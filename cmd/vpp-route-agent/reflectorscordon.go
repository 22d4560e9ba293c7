package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/reflectors"
)

func reflectorsCordon() *cobra.Command {
	var reason string
	var k kubernetesFlags
	c := &cobra.Command{
		Use:   "cordon NODE",
		Short: "Keep a node from being a reflector, and move its role elsewhere",
		Long: `Keep a node from being a reflector. If it is one that the controller made, another
node takes the role first. The annotation vpp-route-agent/reflector-cordon of the Node says why.

Workloads and Kubernetes are not concerned, unless --kubernetes says so: then the Node is cordoned
there, too, with the annotation vpp-route-agent/cordon. One that is cordoned already stays as it
is.`,
		Example: `  vpp-route-agent reflectors cordon edge-7 --reason "memory is replaced"
  vpp-route-agent reflectors cordon edge-7 --kubernetes`,
		Args: arguments(1, 1),
	}
	c.Flags().StringVar(&reason, "reason", "by hand", "for whoever finds it")
	k.add(c, "cordon the Node in Kubernetes, too")
	return deskCommand(c, func(cmd *cobra.Command, args []string, desk *reflectors.Desk) error {
		if strings.TrimSpace(reason) == "" || strings.ContainsFunc(reason, unicode.IsControl) {
			return usageError{errors.New("--reason must be a text of one line")}
		}
		return k.setCordon(cmd, desk, args[0], reason)
	})
}

func reflectorsUncordon() *cobra.Command {
	var k kubernetesFlags
	c := &cobra.Command{
		Use: "uncordon NODE", Short: "Let a node be a reflector again", Args: arguments(1, 1),
		Long: `Let a node be a reflector again. With --kubernetes the Node is uncordoned in
Kubernetes, too, if "cordon --kubernetes" has cordoned it, and nobody else.`,
	}
	k.add(c, "uncordon the Node in Kubernetes, too")
	return deskCommand(c, func(cmd *cobra.Command, args []string, desk *reflectors.Desk) error {
		return k.setCordon(cmd, desk, args[0], "")
	})
}

// kubernetesFlags say whether Kubernetes is concerned, and how it is reached.
type kubernetesFlags struct {
	too        bool
	kubeconfig string
}

func (k *kubernetesFlags) add(c *cobra.Command, usage string) {
	c.Flags().BoolVar(&k.too, "kubernetes", false, usage)
	c.Flags().StringVar(&k.kubeconfig, "kubeconfig", "", "file by which Kubernetes is reached; "+
		"default: that of kubectl")
}

// setCordon sets the cordon of a node; no reason ends it. That of the role comes first: the role
// should be on its way before workloads are.
func (k *kubernetesFlags) setCordon(cmd *cobra.Command, desk *reflectors.Desk, node,
	reason string) error {
	client, err := desk.Kubernetes(), error(nil)
	switch {
	case client != nil:
	case k.too && k.kubeconfig != "":
		client, err = kubernetes.NewClient(k.kubeconfig)
	case k.too:
		client, err = kubernetes.NewDefaultClient()
	case k.kubeconfig != "":
		err = errors.New("--kubeconfig goes with --kubernetes")
	}
	if err != nil {
		return usageError{err}
	}
	name := node
	err = desk.Change(cmd.Context(), func(v reflectors.View) (c reflectors.Changes, err error) {
		o, ok := v.World.Node(node)
		switch {
		case !ok:
			return c, refuse("there is no Node %s", node)
		case v.World.Locked():
			return c, refuse("ClusterInformation(default): datastoreReady is false")
		}
		name = v.World.KubernetesName(node)
		o.Value, err = reflector.SetCordon(o.Value, reason)
		if err != nil {
			return c, refuse("Node(%s): %w", node, err)
		}
		return reflectors.Changes{Node: &o}, nil
	})
	if err != nil {
		return err
	}
	what := "is cordoned: " + reason
	if reason == "" {
		what = "is not cordoned"
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", node, what); err != nil || !k.too {
		return err
	}
	if reason == "" {
		err = client.Uncordon(cmd.Context(), name)
	} else {
		err = client.Cordon(cmd.Context(), name, reason)
	}
	if err != nil {
		return refuse("Node %s in Kubernetes stays as it is: %w", name, err)
	}
	what = "is cordoned"
	if reason == "" {
		what = "is not cordoned"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Node %s in Kubernetes %s\n", name, what)
	return err
}
