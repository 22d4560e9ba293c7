// Command client is the program of a tenant, red. It asks the agent for the tenant's network in one
// call: an interface with an address, and a route, in a table of their own or in the default one.
//
// Programs outside this repository find the same messages in Ligato's module,
// go.ligato.io/vpp-agent/v3/proto/ligato.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

func main() {
	socket := flag.String("socket", "/run/vpp-route-agent/external.sock", "the agent's socket")
	port := flag.String("interface", "", "name of the tenant's interface")
	table := flag.Uint("table", 0, "number of the tenant's VRF table; 0: the default table")
	remove := flag.Bool("delete", false, "have nothing any more")
	flag.Parse()
	config := &configurator.Config{}
	if !*remove {
		config.VppConfig = network(*port, uint32(*table))
	}
	if err := apply(*socket, config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// network is all that red wants. In a table of its own it also wants a way back to the underlay.
func network(port string, table uint32) *vpp.ConfigData {
	out := &vpp.ConfigData{
		Interfaces: []*vpp.Interface{{Name: port, Enabled: true, Vrf: table,
			IpAddresses: []string{"10.50.0.1/24"}}},
		Routes: []*l3.Route{{DstNetwork: "192.0.2.0/24", NextHopAddr: "10.50.0.2",
			OutgoingInterface: port, VrfId: table}},
	}
	if table != 0 {
		out.Vrfs = []*l3.VrfTable{{Id: table, Label: "red"}}
		out.Routes = append(out.Routes, &l3.Route{Type: l3.Route_INTER_VRF,
			DstNetwork: "192.168.4.0/24", VrfId: table})
	}
	return out
}

// apply has the agent carry out config as all that source red wants, and waits until all of it is
// in the data plane.
func apply(socket string, config *configurator.Config) error {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "datasrc", "red")
	var header metadata.MD
	_, err = configurator.NewConfiguratorServiceClient(conn).Update(ctx,
		&configurator.UpdateRequest{Update: config, FullResync: true, WaitDone: true},
		grpc.WaitForReady(true), grpc.Header(&header))
	if err != nil {
		return err
	}
	fmt.Printf("transaction %s is in the data plane\n", header.Get("seqnum")[0])
	return nil
}
