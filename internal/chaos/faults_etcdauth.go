package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/testcluster"
)

const (
	etcdUser     = "root" // etcd wants one of this name before it asks for passwords
	etcdPassword = "chaos"
	tokenTTL     = 3 * time.Second
)

// expireTokens lets the agents hold tokens that etcd has forgotten, and then need them: a watch
// alone does not, so the nodes are cut off as well.
func expireTokens(ctx context.Context, t *trial) error {
	if err := t.demandPasswords(ctx); err != nil {
		return err
	}
	for range 2 {
		if err := testcluster.Pause(ctx, 3*tokenTTL); err != nil {
			return err
		}
		if err := t.getsThrough(ctx); err != nil {
			return err
		}
		if err := testcluster.Pause(ctx, 2*tokenTTL); err != nil {
			return err
		}
		if err := compactMeanwhile(ctx, t); err != nil {
			return err
		}
		if err := t.converged(ctx, recovery); err != nil {
			return err
		}
	}
	return nil
}

// demandPasswords gives the agents a name and a password, and then has etcd ask for it, with tokens
// that live for tokenTTL.
func (t *trial) demandPasswords(ctx context.Context) error {
	file := filepath.Join(t.Dir(), "etcd-password")
	if err := os.WriteFile(file, []byte(etcdPassword+"\n"), 0o600); err != nil {
		return err
	}
	for _, n := range t.agents() {
		a := n.agent()
		a.Flags = []string{"--etcd-username", etcdUser, "--etcd-password-file", file}
		if err := t.restart(ctx, a); err != nil {
			return err
		}
	}
	t.etcd.tokenTTL = tokenTTL
	if err := t.etcd.stop(); err != nil {
		return err
	}
	if err := t.etcd.startAgain(ctx); err != nil {
		return err
	}
	client := t.Data.Client()
	_, err1 := client.UserAdd(ctx, etcdUser, etcdPassword)
	_, err2 := client.UserGrantRole(ctx, etcdUser, "root") // the role is there from the start
	_, err3 := client.AuthEnable(ctx)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	data, err := calicotest.DialAs(etcdUser, etcdPassword, t.Endpoints, t.etcd.dial)
	if err != nil {
		return err
	}
	t.Data.Close()
	t.Data = data
	return nil
}
