package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/secrets"
)

// passwords is where the passwords of BGP peers come from.
type passwords interface {
	Lookup(calico.SecretKeyRef) (string, error)
	Run(context.Context) error
}

// newPasswords chooses the source: the directory that the operator names, where Kubernetes can be
// asked its Secrets, else the default directory.
func newPasswords(cfg config, log *slog.Logger) (passwords, error) {
	if cfg.passwordDir != "" || !kubernetes.InPod() && !cfg.inKubernetes() {
		return directory{secrets.Dir(cmp.Or(cfg.passwordDir, defaultPasswordDir))}, nil
	}
	client, err := kubernetes.NewClientFor(cfg.kube)
	if err != nil {
		return nil, fmt.Errorf("passwords: %w", err)
	}
	return secrets.NewKube(client, cfg.secretsIn, log), nil
}

// directory is read at each look-up, so that Run has nothing to watch.
type directory struct{ secrets.Dir }

func (directory) Run(context.Context) error { return nil }
