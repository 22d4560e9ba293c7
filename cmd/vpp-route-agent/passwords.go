package main

import (
	"cmp"
	"context"
	"log/slog"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/secrets"
)

// passwords is where the passwords of BGP peers come from.
type passwords interface {
	Lookup(calico.SecretKeyRef) (string, error)
	Run(context.Context) error
}

// newPasswords chooses the source: the directory that the operator names, in a pod the Kubernetes
// Secrets, else the default directory.
func newPasswords(cfg config, env environment, log *slog.Logger) (passwords, error) {
	kube, ok := secrets.InCluster(env)
	if cfg.passwordDir != "" || !ok {
		return directory{secrets.Dir(cmp.Or(cfg.passwordDir, defaultPasswordDir))}, nil
	}
	kube.Namespace, kube.Log = cfg.secretsIn, log
	return secrets.NewKube(kube)
}

// directory is read at each look-up, so that Run has nothing to watch.
type directory struct{ secrets.Dir }

func (directory) Run(context.Context) error { return nil }
