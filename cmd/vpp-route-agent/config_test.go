package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/ipam"
)

var update = flag.Bool("update", false, "write generated documents instead of comparing them")

// load reads a configuration as `run` does, from arguments, variables and the text of a file (""
// for none).
func load(t *testing.T, args []string, env map[string]string, file string) (config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	return loadConfig(flags, func(name string) (string, bool) {
		if v, ok := env[name]; ok {
			return v, true
		}
		if name == "NODENAME" {
			return "edge-7", true
		}
		return "", false
	})
}

func TestStrongestPlaceWins(t *testing.T) {
	const file = "etcdEndpoints: [http://file:1]\n"
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		file string
		want string
	}{
		"default": {nil, nil, "", "http://127.0.0.1:2379"},
		"file":    {nil, nil, file, "http://file:1"},
		"environment over file": {nil,
			map[string]string{"ETCD_ENDPOINTS": "http://env:1"}, file, "http://env:1"},
		"calico's prefix over the plain name": {nil,
			map[string]string{"ETCD_ENDPOINTS": "http://env:1",
				"CALICO_ETCD_ENDPOINTS": "http://calico:1"}, file, "http://calico:1"},
		"our own prefix over calico's": {nil,
			map[string]string{"CALICO_ETCD_ENDPOINTS": "http://calico:1",
				"VPP_ROUTE_AGENT_ETCD_ENDPOINTS": "http://own:1"}, file, "http://own:1"},
		"flag over everything": {[]string{"--etcd-endpoints=http://flag:1"},
			map[string]string{"ETCD_ENDPOINTS": "http://env:1"}, file, "http://flag:1"},
		"several endpoints": {[]string{"--etcd-endpoints=http://a:1,http://b:1"},
			nil, "", "http://a:1 http://b:1"},
		"a flag given twice adds up": {[]string{"--etcd-endpoints=http://a:1",
			"--etcd-endpoints=http://b:1"}, nil, "", "http://a:1 http://b:1"},
		"a prefixed variable wins when empty, and means the default": {nil,
			map[string]string{"ETCD_ENDPOINTS": "http://env:1", "CALICO_ETCD_ENDPOINTS": ""}, "",
			"http://127.0.0.1:2379"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, tc.args, tc.env, tc.file)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(c.etcdEndpoints, " "); got != tc.want {
				t.Errorf("endpoints %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWrongConfigurationIsOneSentence(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		file string
		want string // part of the sentence: the place and what is wrong
	}{
		"unknown key in the file": {nil, nil, "etcdEndpoint: http://a:1\n",
			`unknown key "etcdEndpoint"`},
		"key twice in the file": {nil, nil, "dataplane: vpp\ndataplane: none\n",
			"already set in map"},
		"a map where a text belongs": {nil, nil, "dataplane: {kind: vpp}\n",
			"key dataplane: want a text"},
		"file that is not there": {[]string{"--config", "/nonexistent.yaml"}, nil, "",
			"/nonexistent.yaml"},
		"bad next hop": {[]string{"--next-hop=10.0.0"}, nil, "",
			`--next-hop: "10.0.0" is not an IP address`},
		"two next hops of a family": {[]string{"--next-hop=10.0.0.1", "--next-hop=10.0.0.2"}, nil,
			"", "one family"},
		"services nowhere": {[]string{"--services-via=10.0.0.1"}, nil, "",
			"--services-via names no interface"},
		"services by two interfaces": {[]string{"--services-via=tap0,tap1"}, nil, "",
			`--services-via: "tap1" is not an IP address, and the interface is tap0`},
		"services by two addresses of a family": {
			[]string{"--services-via=tap0,10.0.0.1,10.0.0.2"}, nil, "", "one family"},
		"services that the kernel forwards": {
			[]string{"--services-via=tap0", "--dataplane=kernel"}, nil, "",
			"--services-via has no meaning with --dataplane kernel"},
		"bad router ID": {nil, map[string]string{"CALICO_ROUTER_ID": "10.0.0"}, "",
			"CALICO_ROUTER_ID: "},
		"unknown data plane": {[]string{"--dataplane=dpdk"}, nil, "",
			"--dataplane: \"dpdk\" is not one of vpp, kernel, none"},
		"flags that conflict": {[]string{"--dataplane=none", "--kernel-table=100"}, nil, "",
			"--kernel-table has no meaning with --dataplane none"},
		"Linux' tunnels with VPP": {[]string{"--tunnels=own"}, nil, "",
			"--tunnels has no meaning with --dataplane vpp"},
		"conflict over two places": {[]string{"--dataplane=kernel"},
			map[string]string{"VPP_ROUTE_AGENT_VPP_SOCKET": "/x"}, "",
			"--vpp-socket has no meaning with --dataplane kernel"},
		"writing without gRPC": {[]string{"--gobgp-write", "--gobgp-listen=off"}, nil, "",
			"conflicts"},
		"somebody else's protocol": {[]string{"--dataplane=kernel", "--kernel-protocol=12"}, nil,
			"", "protocol 12 belongs to bird"},
		"number out of range": {nil,
			map[string]string{"VPP_ROUTE_AGENT_FIB_SOURCE_PRIORITY": "300"}, "",
			`VPP_ROUTE_AGENT_FIB_SOURCE_PRIORITY: "300" is not a whole number from 1 to 255`},
		"a listener that is a name": {[]string{"--metrics-listen=localhost"}, nil, "",
			"is neither an address nor address:port"},
		"unknown datastore": {nil, map[string]string{"DATASTORE_TYPE": "consul"}, "",
			"DATASTORE_TYPE: \"consul\" is not one of etcdv3, kubernetes"},
		"published addresses without etcd": {[]string{"--learn=ipam", "--host-address=peerip"},
			map[string]string{"DATASTORE_TYPE": "kubernetes"}, "",
			"--host-address peerip needs etcd, and Calico's data are in Kubernetes"},
		"publishing without etcd": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.1/24",
			"--uplink-publish=lease"}, map[string]string{"KUBECONFIG": "/k"}, "",
			"--uplink-publish lease needs etcd"},
		"external configuration without etcd": {[]string{"--external=etcd,grpc"},
			map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "",
			"--external etcd needs etcd"},
		"API without scheme": {nil, map[string]string{"K8S_API_ENDPOINT": "192.0.2.1:6443"}, "",
			"K8S_API_ENDPOINT: want a URL such as https://192.0.2.10:6443"},
		"certificate for the API without key": {[]string{"--k8s-cert-file=/c"}, nil, "",
			"given together"},
		"unknown API group": {nil, map[string]string{"CALICO_API_GROUP": "v3"}, "",
			"CALICO_API_GROUP: \"v3\" is not one of crd.projectcalico.org/v1, " +
				"projectcalico.org/v3"},
		"podCIDRs in etcd": {[]string{"--use-pod-cidr"}, nil, "", "needs --datastore-type " +
			"kubernetes"},
		"user without password": {nil, map[string]string{"ETCD_USERNAME": "u"}, "",
			"given together"},
		"certificate without key": {[]string{"--etcd-cert-file=/c"}, nil, "", "given together"},
		"node name with a slash":  {[]string{"--node-name=a/b"}, nil, "", `node name "a/b"`},
		"source name too long": {[]string{"--fib-source=" + strings.Repeat("x", 64)}, nil,
			"", "longer than 54 bytes"},
		"empty variable of ours": {nil, map[string]string{"VPP_ROUTE_AGENT_DEFERRAL": ""}, "",
			"VPP_ROUTE_AGENT_DEFERRAL must not be empty"},
		"empty flag": {[]string{"--dataplane="}, nil, "",
			"--dataplane must not be empty"},
		"empty key of the file": {nil, nil, "stateDir: ''\n", "key stateDir of the " +
			"configuration file must not be empty"},
		"link-local next hop": {[]string{"--next-hop=fe80::1"}, nil, "",
			"fe80::1 cannot be a next hop"},
		"the kernel's own table": {[]string{"--dataplane=kernel", "--kernel-table=255"}, nil,
			"", "table 255 belongs to the kernel"},
		"table 0": {[]string{"--dataplane=kernel", "--kernel-table=0"}, nil, "",
			"from 1 to 4294967295"},
		"metric 0": {[]string{"--dataplane=kernel", "--kernel-metric=0"}, nil,
			"", "from 1 to 4294967295"},
		"socket path too long": {[]string{"--admin-socket=/" + strings.Repeat("x", 107)},
			nil, "", "longer than the 107 bytes"},
		"state directory is a file": {[]string{"--state-dir=/etc/passwd"}, nil, "",
			"/etc/passwd is not a directory"},
		"metrics for all in clear": {[]string{"--metrics-listen=0.0.0.0:9179"}, nil, "",
			"--metrics-listen 0.0.0.0:9179 leaves this host: give --tls-cert-file"},
		"gRPC for all in clear": {[]string{"--gobgp-listen=192.0.2.1:50051"}, nil, "",
			"--gobgp-listen 192.0.2.1:50051 leaves this host"},
		"TLS key without certificate": {[]string{"--tls-key-file=/k"}, nil, "", "given together"},
		"clients' CA without TLS": {[]string{"--tls-client-ca-file=/c"}, nil, "",
			"needs --tls-cert-file"},
		"limit of no class": {[]string{"--prefix-limit=router=5"}, nil, "",
			`"router=5" is not one of mesh, global, node, local-workload`},
		"limit of 0": {[]string{"--prefix-limit=mesh=0"}, nil, "",
			"greater than 0"},
		"two limits": {[]string{"--prefix-limit=mesh=5", "--prefix-limit=mesh=6"},
			nil, "", "mesh has two limits"},
		"retry at once": {[]string{"--prefix-limit-retry=0s"}, nil, "",
			"between 1s and 24h"},
		"routes from nowhere": {[]string{"--learn=ospf"}, nil, "",
			`--learn: "ospf" is not one of bgp, ipam and bgp,ipam`},
		"a source twice": {[]string{"--learn=bgp,bgp"}, nil, "",
			`is not one of bgp, ipam`},
		"one source by two names": {[]string{"--learn=ipam,etcd"}, nil, "",
			`is not one of bgp, ipam`},
		"IPAM's routes for no FIB": {[]string{"--learn=ipam", "--dataplane=none"}, nil, "",
			"--learn ipam has no meaning with --dataplane none"},
		"BGP's settings without BGP": {[]string{"--learn=ipam", "--next-hop=10.0.0.1"}, nil, "",
			"--next-hop has no meaning with --learn ipam"},
		"addresses of nobody": {[]string{"--learn=ipam", "--host-address=dns"}, nil, "",
			`"dns" is not peerip, node`},
		"host addresses without use": {[]string{"--host-address=node"}, nil, "",
			"--host-address has no meaning with --learn bgp"},
		"hosts among Calico's keys": {[]string{"--learn=ipam", "--hosts-prefix=/calico/hosts"},
			nil, "", "under /calico/"},
		"published among Calico's": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.1/24",
			"--hosts-prefix=/calico/hosts"}, nil, "", "under /calico/"},
		"published under no prefix": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.1/24",
			"--hosts-prefix=hosts"}, nil, "", "is no prefix of keys"},
		"two ways to name etcd": {[]string{"--etcd-host=a"},
			map[string]string{"ETCD_ENDPOINTS": "http://b:1"}, "",
			"conflict with --etcd-endpoints"},
		"a list in a list": {nil, nil, "etcdEndpoints: [http://a:1, [http://b:2]]\n",
			"key etcdEndpoints: want no list inside the list"},
		"node name too long": {[]string{"--node-name=" + strings.Repeat("x", 254)}, nil, "",
			"is longer than 253 bytes"},
		"namespace with a slash": {[]string{"--secret-namespace=a/b"}, nil, "",
			`--secret-namespace: "a/b" is no name of a Kubernetes namespace`},
		"password directory is a file": {[]string{"--password-dir=/etc/passwd"}, nil, "",
			"--password-dir: /etc/passwd is not a directory"},
		"one socket for two": {[]string{"--external=grpc", "--external-grpc-socket=/run/x",
			"--admin-socket=/run/x"}, nil, "",
			"--external-grpc-socket and --admin-socket are both /run/x"},
		"one port for two": {[]string{"--metrics-listen=127.0.0.1:50051"}, nil, "",
			"--metrics-listen 127.0.0.1:50051 and --gobgp-listen 127.0.0.1:50051 are one port"},
		"one port, one of all": {[]string{"--metrics-listen=0.0.0.0:50051", "--plaintext"}, nil,
			"", "are one port"},
		"limit too large": {[]string{"--prefix-limit=mesh=99999999999"}, nil, "",
			"at most 2147483647"},
		"the earlier name of ipam": {[]string{"--learn=etcd", "--dataplane=none"}, nil, "",
			"--learn etcd has no meaning with --dataplane none"},
		"bad port of etcd": {[]string{"--etcd-port=0"}, nil, "",
			`--etcd-port: "0" is not a port`},
		"bad scheme of etcd": {[]string{"--etcd-scheme=ftp"}, nil, "",
			"is not one of http, https"},
		"endpoints from DNS": {nil, map[string]string{"ETCD_DISCOVERY_SRV": "example.org",
			"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "",
			"ETCD_DISCOVERY_SRV is not supported: name etcd's endpoints in ETCD_ENDPOINTS"},
		"password file missing": {[]string{"--etcd-password-file=/nonexistent"}, nil, "",
			"/nonexistent"},
		"password in two places": {[]string{"--etcd-password-file=/etc/passwd"},
			map[string]string{"ETCD_PASSWORD": "p"}, "", "conflicts with ETCD_PASSWORD"},
		"uplink without address": {[]string{"--uplink=eth0"}, nil, "",
			"--uplink and --uplink-address must be given together"},
		"address without uplink": {[]string{"--uplink-address=10.0.0.1/24"}, nil, "",
			"must be given together"},
		"uplink address, no length": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.1"}, nil,
			"", `"10.0.0.1" is not an address with a prefix length`},
		"uplink address of a subnet": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.0/24"},
			nil, "", "first or last address"},
		"uplink broadcast address": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.255/24"},
			nil, "", "first or last address"},
		"two addresses of a family": {[]string{"--uplink=eth0",
			"--uplink-address=10.0.0.1/24,10.0.1.1/24"}, nil, "", "of one family"},
		"uplink without data plane": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.1/24",
			"--dataplane=none"}, nil, "", "--uplink has no meaning with --dataplane none"},
		"lease too short": {[]string{"--uplink=eth0", "--uplink-address=10.0.0.1/24",
			"--uplink-ttl=1s"}, nil, "", "between 5s and 24h"},
		"publishing nothing": {[]string{"--uplink-publish=static"}, nil, "",
			"have no meaning without --uplink"},
		"negative deferral": {[]string{"--deferral=-1s"}, nil, "", "between 0s and 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tc.args, tc.env, tc.file)
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tc.want) ||
				strings.Contains(strings.TrimSpace(err.Error()), "\n") {
				t.Errorf("error %q, want one sentence with %q", err, tc.want)
			}
		})
	}
}

// A manifest that knows an address of either family cannot put a port behind it: fd00::5:9179 is
// another address.
func TestAListenerMayLackItsPort(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.7": "192.0.2.7:9179", "fd00:10::5": "[fd00:10::5]:9179",
		"fe80::1%eth0": "[fe80::1%eth0]:9179",
		"192.0.2.7:80": "192.0.2.7:80", "[fd00:10::5]:80": "[fd00:10::5]:80", ":80": ":80",
		"off": "",
	} {
		c, err := load(t, []string{"--plaintext", "--metrics-listen=" + given}, nil, "")
		if err != nil || c.metricsListen != want {
			t.Errorf("--metrics-listen %s: %q, %v, want %q", given, c.metricsListen, err, want)
		}
	}
	if c, err := load(t, []string{"--gobgp-listen=::1"}, nil, ""); err != nil ||
		c.gobgpListen != "[::1]:50051" {
		t.Errorf("--gobgp-listen: %q, %v", c.gobgpListen, err)
	}
	if _, err := load(t, []string{"--metrics-listen=fd00:10::5"}, nil, ""); err == nil {
		t.Error("a bare address that leaves the host was taken in plain text")
	}
}

// The first agent of this kind took etcd's address in parts; whatever is left out has the same
// default as everywhere.
func TestEtcdInParts(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "http://127.0.0.1:2379"},
		{[]string{"--etcd-host=etcd.lab"}, "http://etcd.lab:2379"},
		{[]string{"--etcd-port=4001"}, "http://127.0.0.1:4001"},
		{[]string{"--etcd-scheme=https", "--etcd-host=10.0.0.5", "--etcd-port=2380"},
			"https://10.0.0.5:2380"},
		{[]string{"--etcd-host=fd00::5"}, "http://[fd00::5]:2379"},
		{[]string{"--etcd-host=[fd00::5]"}, "http://[fd00::5]:2379"},
	} {
		c, err := load(t, tc.args, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.etcdEndpoints, " "); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.args, got, tc.want)
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := load(t, []string{"--etcd-username=u", "--etcd-password-file=" + file}, nil,
		""); err != nil || c.etcdPassword != "s3cret" {
		t.Errorf("password %q, %v", c.etcdPassword, err)
	}
}

func TestLearnDecidesWhatIsRead(t *testing.T) {
	for args, want := range map[string]calico.Needs{
		"":                                    {VXLAN: true},
		"--dataplane=kernel":                  {},
		"--learn=ipam":                        {NoBGP: true, Hosts: "/vpp-calico/hosts/"},
		"--learn=bgp,ipam":                    {Hosts: "/vpp-calico/hosts/"},
		"--learn=etcd":                        {NoBGP: true, Hosts: "/vpp-calico/hosts/"},
		"--learn=bgp,etcd":                    {Hosts: "/vpp-calico/hosts/"},
		"--learn=ipam,bgp":                    {Hosts: "/vpp-calico/hosts/"},
		"--hosts-prefix=/lab/":                {VXLAN: true},
		"--blocks-prefix=/old/v2/ipv4/block/": {Blocks: "/old/v2/", VXLAN: true},
		"--blocks-prefix=/calico/ipam/v2/assignment/ipv4/block": {VXLAN: true},
		"--learn=ipam --hosts-prefix=/lab/hosts --blocks-prefix=/b": {NoBGP: true,
			Hosts: "/lab/hosts/", Blocks: "/b/"},
	} {
		c, err := load(t, strings.Fields(args), nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.needs(); got != want {
			t.Errorf("%s: reads %+v, want %+v", args, got, want)
		}
	}
}

func TestNodeName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodename")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"NODENAME, trimmed": {map[string]string{"NODENAME": " rack3.edge-1 "},
			"rack3.edge-1"},
		"calico's file before HOSTNAME": {map[string]string{"NODENAME": "",
			"CALICO_NODENAME_FILE": file, "HOSTNAME": "h"}, "from-file"},
		"HOSTNAME in lower case": {map[string]string{"NODENAME": "",
			"CALICO_NODENAME_FILE": "/nonexistent", "HOSTNAME": "Edge-9"}, "edge-9"},
		"a flag's variable over all": {map[string]string{"VPP_ROUTE_AGENT_NODE_NAME": "own",
			"NODENAME": "other"}, "own"},
		"CALICO_NODENAME over NODENAME": {map[string]string{"CALICO_NODENAME": "c",
			"NODENAME": "n"}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, nil, tc.env, "")
			if err != nil {
				t.Fatal(err)
			}
			if c.nodeName != tc.want {
				t.Errorf("node name %q, want %q", c.nodeName, tc.want)
			}
		})
	}
}

// Every key works in the file, and what it sets is what the flag sets.
func TestFileAndFlagsMeanTheSame(t *testing.T) {
	sample := map[string]string{
		"node-name": "n", "router-id": "10.0.0.1", "advertise-cluster-ips": "10.96.0.0/12",
		"next-hop": "10.0.0.9", "services-via": "tap0,10.0.0.1,fd00::1",
		"etcd-endpoints": "http://x:1", "vpp-socket": "/s",
		"vpp-stats-socket": "/t", "fib-source": "src",
		"fib-source-priority": "7", "gobgp-listen": "127.0.0.1:1", "metrics-listen": "off",
		"admin-socket": "/a", "state-dir": "/d", "deferral": "5s",
		"prefix-limit": "mesh=100,node=7", "prefix-limit-retry": "1m",
		"log-level": "debug", "log-format": "json", "gobgp-write": "true",
	}
	seen := 0
	for _, s := range settings {
		value, ok := sample[s.flag]
		if !ok {
			continue
		}
		seen++
		byFlag, err := load(t, []string{"--" + s.flag + "=" + value}, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		byFile, err := load(t, nil, nil, s.file+": "+value+"\n")
		if s.flag == "node-name" {
			continue // the test's NODENAME wins over the file
		}
		if err != nil {
			t.Fatal(err)
		}
		byFile.configFile = ""
		byFlag.texts, byFile.texts = nil, nil
		if !reflect.DeepEqual(byFlag, byFile) {
			t.Errorf("--%s and %s differ:\n%+v\n%+v", s.flag, s.file, byFlag, byFile)
		}
	}
	if seen != len(sample) {
		t.Errorf("%d of %d settings seen", seen, len(sample))
	}
}

// YAML reads 0123456 as octal, 1e6 as a million and yes as true: a password or a name would
// silently be another one.
func TestTextInTheFileIsNeverChanged(t *testing.T) {
	for _, key := range []string{"etcdPassword", "nodeName", "etcdUsername", "stateDir",
		"etcdPasswordFile"} {
		for _, value := range []string{"0123456", "12345678901234567890", "42", "1e6", "0x1F",
			"1_000", "yes", "off", "[42]"} {
			_, err := load(t, nil, nil, key+": "+value+"\n")
			_, said, ofKey := strings.Cut(fmt.Sprint(err), "key "+key+": ")
			if !ofKey || !strings.Contains(said, "in quotes") || strings.Contains(said, value) {
				t.Errorf("%s: %s: got %v, want that it belongs in quotes, and not the value, "+
					"which may be a password", key, value, err)
			}
		}
	}
	for yaml, want := range map[string]string{"'0123456'": "0123456", `"1e6"`: "1e6",
		"0123x": "0123x", "2026-11-22": "2026-11-22"} {
		c, err := load(t, nil, map[string]string{"ETCD_USERNAME": "u"}, "etcdPassword: "+yaml+"\n")
		if err != nil || c.etcdPassword != want {
			t.Errorf("etcdPassword: %s is %q, %v", yaml, c.etcdPassword, err)
		}
	}
	// Numbers, truth values and durations need no quotes.
	if _, err := load(t, nil, nil, "fibSourcePriority: 7\nspotChecks: 0\nguardShare: "+
		"0.25\ndeferral: 0\nmetricsListen: off\netcdPort: 2380\nplaintext: true\nuplink: "+
		"3\nuplinkAddress: 10.0.0.1/24\n"); err != nil {
		t.Error(err)
	}
	for _, s := range settings {
		// which may be an index
		takesAnything := s.set(&config{}, "any text") == nil && !s.list && s.flag != "uplink"
		if takesAnything && !s.literal {
			t.Errorf("%s takes any text and is not literal", s.file)
		}
	}
}

func TestConfigurationReferenceIsTrue(t *testing.T) {
	const path = "../../docs/configuration.md"
	var b bytes.Buffer
	if err := writeReference(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	onDisk, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(onDisk, b.Bytes()) {
		t.Error("docs/configuration.md is old: " +
			"go test ./cmd/vpp-route-agent -run Reference -update")
	}
}

// The commands about reflectors are about etcd, also with a kubeconfig, unless another datastore is
// asked for.
func TestWhereReflectorsAre(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want string
	}{
		{nil, etcdv3}, {map[string]string{"KUBECONFIG": "kubeconfig"}, etcdv3},
		{map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, etcdv3},
		{map[string]string{"DATASTORE_TYPE": "kubernetes"}, inKubernetes},
	} {
		c, err := load(t, nil, tc.env, "")
		if c.forReflectors(); err != nil || c.datastoreType != tc.want {
			t.Errorf("%v: %v, %s", tc.env, err, c.datastoreType)
		}
	}
}

// Which datastore it is: as calico-node decides, but that without a way to Kubernetes it is etcd.
func TestDatastore(t *testing.T) {
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	with := func(name, value string) map[string]string {
		all := maps.Clone(pod)
		all[name] = value
		return all
	}
	for _, tc := range []struct {
		env  map[string]string
		want string
	}{
		{nil, etcdv3}, {pod, inKubernetes},
		{with("ETCD_ENDPOINTS", "http://192.0.2.1:2379"), etcdv3},
		{with("VPP_ROUTE_AGENT_ETCD_HOST", "192.0.2.1"), etcdv3},
		{with("DATASTORE_TYPE", "etcdv3"), etcdv3},
		{map[string]string{"KUBECONFIG": "kubeconfig"}, inKubernetes},
		{map[string]string{"K8S_API_ENDPOINT": "https://192.0.2.1:6443"}, inKubernetes},
		{map[string]string{"ETCD_ENDPOINTS": "http://192.0.2.1:2379",
			"DATASTORE_TYPE": "kubernetes"}, inKubernetes},
		{map[string]string{"ETCD_DISCOVERY_SRV": "example.org",
			"DATASTORE_TYPE": "kubernetes"}, inKubernetes},
		{map[string]string{"ETCD_DISCOVERY_SRV": "example.org",
			"ETCD_ENDPOINTS": "http://192.0.2.1:2379"}, etcdv3},
		{map[string]string{"ETCD_DISCOVERY_SRV": ""}, etcdv3}, // as calicoctl node run has it
	} {
		c, err := load(t, nil, tc.env, "")
		if err != nil || c.datastoreType != tc.want {
			t.Errorf("%v: %q, %v; want %s", tc.env, c.datastoreType, err, tc.want)
		}
	}
	env := maps.Clone(pod)
	env["VPP_ROUTE_AGENT_LEARN"] = "bgp,ipam"
	c, err := load(t, nil, env, "")
	if err != nil || !slices.Equal(c.hostAddress, []ipam.AddressSource{ipam.NodeObject}) {
		t.Errorf("addresses of hosts from %v, %v", c.hostAddress, err)
	}
}
