package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/reflectors"
)

// TestAdoptIsAsDocumented: the example of docs/reflectors.md is what the command prints.
func TestAdoptIsAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reflectors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "\n## Take over reflectors\n")
	_, block, _ := strings.Cut(after, "\n```\n")
	want, _, found := strings.Cut(block, "```\n")
	if !found {
		t.Fatal("the page has no example")
	}
	object := func(kind calico.Kind, name, rest string) reflector.Object {
		return reflector.Object{
			Key: calico.Key{Kind: kind, Name: name}, Revision: 1,
			Value: fmt.Appendf(nil, `{"kind":%q,"metadata":{"name":%q,`+
				`"creationTimestamp":"2026-01-05T08:00:00Z",%s}`, kind, name, rest),
		}
	}
	objects := []reflector.Object{
		object(calico.KindBGPConfiguration, "default",
			`"uid":"1"},"spec":{"nodeToNodeMeshEnabled":false}`),
		object(calico.KindBGPPeer, "peer-with-route-reflectors",
			`"uid":"2"},"spec":{"nodeSelector":"all()","peerSelector":"has(rr)"}`),
	}
	agents := map[string]reflector.Agent{}
	for i, n := range []struct{ name, rest string }{
		{"rr-1", `"labels":{"rr":"","topology.kubernetes.io/zone":"east"}},` +
			`"spec":{"bgp":{"routeReflectorClusterID":"0.0.0.0",`},
		{"rr-2", `"labels":{"rr":"","topology.kubernetes.io/zone":"east"}},` +
			`"spec":{"bgp":{"routeReflectorClusterID":"0.0.0.0",`},
		{"edge-1", `"labels":{"topology.kubernetes.io/zone":"west"}},"spec":{"bgp":{`},
		{"edge-2", `"labels":{"topology.kubernetes.io/zone":"west"}},"spec":{"bgp":{`},
	} {
		objects = append(objects, object(calico.KindNode, n.name,
			n.rest+fmt.Sprintf(`"ipv4Address":"10.0.0.%d/24"}}`, i+1)))
		agents[n.name] = reflector.Agent{Status: reflector.Status{
			Format: reflector.StatusFormat, Version: version, Dataplane: "vpp",
		}}
	}
	w := reflector.Read(objects)
	w.Now, w.Version, w.Agents = time.Now(), version, agents
	v := reflectors.View{World: w}
	adoption, err := adoptionOf(v)
	if err != nil {
		t.Fatal(err)
	}
	a, err := viewOf(v, adoption)
	if err != nil {
		t.Fatal(err)
	}
	b := &strings.Builder{}
	if err := printAdoption(b, a); err != nil || b.String() != want {
		t.Errorf("%v, printed:\n%s\nthe page has:\n%s", err, b, want)
	}
}
