// Package reflector chooses the route reflectors of a Calico cluster, and moves the cluster from
// the full mesh to reflectors and back, one step at a time. It is pure: Choose and Next look at a
// World and remember nothing. Their caller, internal/reflectors, reads etcd, asks the agents, and
// carries out the steps.
package reflector
