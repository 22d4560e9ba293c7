package main

import (
	"context"
	"net/netip"
)

var apiAddress = netip.AddrFrom4([4]byte{192, 168, 4, 34})

// startAPI has agents that start from now on find Calico's data in a stand-in for the Kubernetes
// API.
func (c *cluster) startAPI() error {
	ns, err := c.machine("api", apiAddress)
	if err == nil {
		c.kube, err = c.ServeKubernetes(ns, apiAddress)
	}
	return err
}

// newKubernetes is a cluster of three nodes whose agents have their data from the Kubernetes API.
func newKubernetes(ctx context.Context, s settings, k kind, l layout) (*cluster, error) {
	return makeCluster(ctx, s, k, "", func(c *cluster) error {
		c.layout = l
		if err := c.startAPI(); err != nil {
			return err
		}
		return c.addThree(ctx)
	})
}
