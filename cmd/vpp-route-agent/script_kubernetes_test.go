package main

import (
	"bytes"
	"strconv"

	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/yamldoc"
)

var kubernetesCommand = verbs(map[string]command{
	"use":    kubernetesUse,
	"beside": kubernetesBeside,
	"put":    kubernetesPut,
	"delete": kubernetesDelete,
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

// kubernetes beside: there is a Kubernetes API without data of Calico's, and the agent knows it.
func kubernetesBeside(sc *script, _ []string) (string, error) {
	sc.beside = kubetest.Start()
	return "", nil
}

// onAPI runs do on the Kubernetes API.
func (sc *script) onAPI(do func(*kubetest.Server)) (string, error) {
	if sc.beside != nil {
		do(sc.beside)
		return "", nil
	}
	if sc.etcd == nil || sc.etcd.api == nil {
		return "", usage("kubernetes use, and etcd start, come first")
	}
	do(sc.etcd.api)
	return "", nil
}

// kubernetes put FILE: the objects in it, Services and EndpointSlices. Calico's are mirrored.
func kubernetesPut(sc *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("kubernetes put FILE")
	}
	text, err := sc.read(args[0])
	if err != nil {
		return "", err
	}
	docs, err := yamldoc.All([]byte(text))
	if err != nil {
		return "", err
	}
	return sc.onAPI(func(s *kubetest.Server) {
		s.Install("discovery.k8s.io/v1", "endpointslices")
		for _, doc := range docs {
			if bytes.Contains(doc, []byte(`"kind":"Service"`)) {
				s.PutObject("services", doc)
			} else {
				s.PutObject("endpointslices.discovery.k8s.io", doc)
			}
		}
	})
}

// kubernetes delete RESOURCE NAMESPACE/NAME
func kubernetesDelete(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("kubernetes delete RESOURCE NAMESPACE/NAME")
	}
	return sc.onAPI(func(s *kubetest.Server) { s.DeleteObject(args[0], args[1]) })
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
