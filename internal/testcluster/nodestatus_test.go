package testcluster

import (
	"fmt"
	"strings"
	"testing"
)

// What calico-node makes of BIRD's routes.
func TestNodeRoutes(t *testing.T) {
	routes, err := nodeRoutes(strings.Split(
		`0.0.0.0/0          via 172.17.0.1 on eth0 [kernel1 20:10:57] * (10)
10.1.0.0/26        via 10.0.0.3 on eth0 [Mesh_10_0_0_3 20:10:57] * (100/0) [i]
                   via 10.0.0.3 on eth0 [Node_10_0_0_4_port_1179 20:10:57] (100/0) [i]
10.1.1.0/26        blackhole [static1 20:10:56] * (200)
10.1.1.5/32        dev cali1 [kernel1 20:11:10] * (10)
10.0.0.0/24        dev eth0 [direct1 20:10:56] * (240)`, "\n"), ".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range routes {
		got = append(got, fmt.Sprint(r))
	}
	want := []string{
		"{FIB 0.0.0.0/0 172.17.0.1 eth0 {Kernel }}",
		"{FIB 10.1.0.0/26 10.0.0.3 eth0 {NodeMesh 10.0.0.3}}",
		"{RIB 10.1.0.0/26 10.0.0.3 eth0 {BGPPeer 10.0.0.4.port.1179}}",
		"{FIB 10.1.1.0/26 N/A blackhole {Static }}",
		"{FIB 10.1.1.5/32 N/A cali1 {Kernel }}",
		"{FIB 10.0.0.0/24 N/A eth0 {Direct }}",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := nodeRoutes([]string{"10.0.0.0/8 via 10.0.0.1 on eth0 [tor 10:00:00] *"},
		"."); err == nil {
		t.Error("calico-node fails for a protocol that confd does not name so")
	}
}
