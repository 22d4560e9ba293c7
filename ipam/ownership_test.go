package ipam

import (
	"fmt"
	"testing"

	"vpp-route-agent/internal/calico"
)

func TestOwnershipOf(t *testing.T) {
	s := snapshot(
		affine("10.1.0.0/26", calico.AffinityConfirmed),
		affine("10.1.9.0/26", calico.AffinityPending),
		block("10.1.0.0/26", host("me"), "10.1.0.5 other"),
		block("10.1.1.0/26", host("other"), "10.1.1.5 third", "10.1.1.6 other", "10.1.1.7 -"),
		block("10.1.2.0/26", calico.Owner{Virtual: "lb"}),
	)
	s.IPPools = map[string]calico.IPPool{
		"wide": {Name: "wide", CIDR: pfx("10.0.0.0/8")},
		"pods": {Name: "pods", CIDR: pfx("10.1.0.0/16")},
	}
	read := []calico.Ownership{
		{Block: calico.Block{CIDR: pfx("10.1.3.0/26"), Owner: host("far")},
			Affinity: calico.AffinityPending},
	}
	for p, want := range map[string]string{
		"10.1.0.5/32":  "pods 10.1.0.0/26 me confirmed, allocated true, other true 10.1.0.5/32",
		"10.1.0.6/32":  "pods 10.1.0.0/26 me confirmed, allocated false, me false 10.1.0.0/26",
		"10.1.1.5/32":  "pods 10.1.1.0/26 other , allocated true, third true 10.1.1.5/32",
		"10.1.1.6/32":  "pods 10.1.1.0/26 other , allocated true, other false 10.1.1.0/26",
		"10.1.1.0/28":  "pods 10.1.1.0/26 other , allocated false, other false 10.1.1.0/26",
		"10.1.2.1/32":  "pods 10.1.2.0/26  , allocated false,  false invalid Prefix",
		"10.1.3.1/32":  "pods 10.1.3.0/26 far pending, allocated false, far false 10.1.3.0/26",
		"10.1.4.1/32":  "pods invalid Prefix  , allocated false,  false invalid Prefix",
		"10.1.9.1/32":  "pods 10.1.9.0/26  pending, allocated false,  false invalid Prefix",
		"10.2.0.0/24":  "wide invalid Prefix  , allocated false,  false invalid Prefix",
		"192.0.2.0/24": " invalid Prefix  , allocated false,  false invalid Prefix",
	} {
		o := OwnershipOf("me", pfx(p), read, s)
		pool := ""
		if o.Pool != nil {
			pool = o.Pool.Name
		}
		got := fmt.Sprintf("%s %s %s %s, allocated %t, %s %t %s", pool, o.Block, o.Owner.Host,
			o.Affinity, o.Allocation != nil, o.Host, o.Borrowed, o.Expected)
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", p, got, want)
		}
	}
}
