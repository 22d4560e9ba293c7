// Package reflector chooses the route reflectors of a Calico cluster, and moves the cluster from
// the full mesh to reflectors and back, one step at a time. It is pure: Next looks at a World
// and remembers nothing. Its caller, internal/reflectors, reads etcd or the Kubernetes API, asks
// the agents, and carries out the steps.
package reflector
