package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/kubernetes"
)

// ReadCluster reads Calico's data of all nodes, by one list of each kind; of large ones the API
// server gives a page at a time. Kinds are not of one version.
func ReadCluster(ctx context.Context, client *kubernetes.Client, cfg Config) (*calico.Cluster,
	error) {
	d := &data{Config: cfg}
	if d.Group == "" {
		group, err := FindGroup(ctx, client)
		if err != nil {
			return nil, err
		}
		d.Group = group
	}
	all := []kubernetes.Resource{core("nodes"), core("pods"), migrations}
	for _, plural := range []string{"clusterinformations", "ippools", "bgpconfigurations",
		"bgpfilters", "bgppeers", "ipamblocks", "blockaffinities"} {
		if !d.UsePodCIDR || plural != "ipamblocks" && plural != "blockaffinities" {
			all = append(all, d.crd(plural))
		}
	}
	reader := calico.NewClusterReader()
	for _, r := range all {
		_, err := client.List(ctx, r, kubernetes.ListOptions{},
			func(_ string, objects []json.RawMessage) error {
				for _, text := range objects {
					o, err := kube.Read(r.Plural, text)
					if err != nil {
						reader.Put(kube.Place(r.Plural, ""), calico.Item{Err: err})
						continue
					}
					for _, p := range o.Items(kube.Options{UsePodCIDR: d.UsePodCIDR}) {
						reader.Put(p.Place, p.Item)
					}
				}
				return nil
			})
		var refused *kubernetes.RequestError
		lacks := errors.As(err, &refused) && (refused.Status == http.StatusNotFound ||
			refused.Status == http.StatusForbidden) // which comes first, without KubeVirt as well
		if err != nil && !(lacks && r == migrations) {
			return nil, err
		}
	}
	return reader.Cluster(0), nil
}
