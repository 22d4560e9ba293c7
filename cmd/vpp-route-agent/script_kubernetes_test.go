package main

import (
	"strconv"

	"vpp-route-agent/internal/kubernetes/kubetest"
)

var kubernetesCommand = verbs(map[string]command{
	"use":    kubernetesUse,
	"deny":   kubernetesDeny,
	"allow":  kubernetesAllow,
	"refuse": kubernetesRefuse,
	"empty":  kubernetesEmpty,
	"back":   kubernetesBack,
})

// kubernetes use: the agent finds the same cluster in the Kubernetes API from its next start on.
// "etcd start" and "etcd stop" are about that then.
func kubernetesUse(sc *script, _ []string) (string, error) {
	if sc.kubernetes {
		return "", usage("it is used already")
	}
	sc.kubernetes = true
	if sc.etcd == nil {
		return "", nil
	}
	sc.etcd.mirror()
	if sc.etcd.relay == nil {
		return "", nil
	}
	if _, err := etcdStop(sc, nil); err != nil {
		return "", err
	}
	return etcdStart(sc, nil)
}

// onAPI runs do on the Kubernetes API.
func (sc *script) onAPI(do func(*kubetest.Server)) (string, error) {
	if sc.etcd == nil || sc.etcd.api == nil {
		return "", usage("kubernetes use, and etcd start, come first")
	}
	do(sc.etcd.api)
	return "", nil
}

// kubernetes deny VERB RESOURCE: the right is taken away.
func kubernetesDeny(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("kubernetes deny VERB RESOURCE")
	}
	return sc.onAPI(func(s *kubetest.Server) { s.Deny(args[0]+" "+args[1], true) })
}

// kubernetes allow VERB RESOURCE: it is given back.
func kubernetesAllow(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("kubernetes allow VERB RESOURCE")
	}
	return sc.onAPI(func(s *kubetest.Server) { s.Deny(args[0]+" "+args[1], false) })
}

// kubernetes refuse STATUS: every request is answered with it; 0: no more.
func kubernetesRefuse(sc *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("kubernetes refuse STATUS")
	}
	status, err := strconv.Atoi(args[0])
	if err != nil {
		return "", usage("%v", err)
	}
	return sc.onAPI(func(s *kubetest.Server) { s.Refuse(status) })
}

// kubernetes empty: the API server is there again with an empty etcd, and without Calico's kinds.
func kubernetesEmpty(sc *script, _ []string) (string, error) {
	return sc.onAPI(func(s *kubetest.Server) {
		sc.saved = s.Save()
		s.Restore(kubetest.Empty())
		s.EndWatches()
	})
}

// kubernetes back: it has what it had before.
func kubernetesBack(sc *script, _ []string) (string, error) {
	return sc.onAPI(func(s *kubetest.Server) { s.Restore(sc.saved); s.EndWatches() })
}
