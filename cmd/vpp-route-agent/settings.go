package main

import (
	"math"
	"strings"
	"time"

	"vpp-route-agent/bgp/gobgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kubernetes"
	external "vpp-route-agent/internal/external/etcd"
	"vpp-route-agent/internal/route"
)

// setting is one line of the configuration reference: how a user names it in each place, and what
// it means.
type setting struct {
	flag string
	// env are in order of precedence; Calico's own names have a CALICO_ prefixed form first.
	env     []string
	file    string // key in the YAML file
	def     string
	usage   string
	secret  bool // not a flag: command lines are visible to every process of the host
	list    bool // a flag that may be given several times
	set     func(c *config, text string) error
	boolean bool
	number  bool // what --help calls a value without a default, which would tell
	// literal must be a string in the file: YAML makes 42798 of 0123456 and true of yes.
	literal bool
	live    bool // a change takes effect upon SIGHUP
	// endpoints are of etcd: somebody may have put a password there, though none belongs there.
	endpoints bool
}

const ownEnvPrefix = "VPP_ROUTE_AGENT_"

// settings are all settings, in the order of --help and the reference.
var settings = []setting{
	{flag: "node-name", env: calicoEnv("NODENAME"), file: "nodeName", literal: true,
		usage: "name of this node in Calico; default: /var/lib/calico/nodename, then the host " +
			"name in lower case", set: text(func(c *config) *string { return &c.nodeName })},
	{flag: "router-id", live: true, env: []string{"CALICO_ROUTER_ID"}, file: "routerID",
		usage: "BGP identifier: a dotted quad, or \"hash\" for one made from the node name; " +
			"default: the node's IPv4 address", set: parseRouterID},
	{flag: "advertise-cluster-ips", live: true, env: []string{"CALICO_ADVERTISE_CLUSTER_IPS"},
		file:  "advertiseClusterIPs",
		usage: "range of cluster IPs to announce, instead of serviceClusterIPs of BGPConfiguration",
		set:   parseClusterIPs},
	{flag: "next-hop", live: true, file: "nextHop", list: true,
		usage: "NEXT_HOP we announce, at most one address per family, instead of the node's BGP " +
			"address", set: parseNextHops},
	{flag: "services-via", live: true, file: "servicesVia", list: true,
		usage: "interface of VPP, and perhaps an address per family behind it, to which packets " +
			"for announced addresses of services go; default: the agent has no routes for them",
		set: parseServicesVia},

	{flag: "etcd-endpoints", env: calicoEnv("ETCD_ENDPOINTS"), file: "etcdEndpoints", list: true,
		endpoints: true, def: "http://127.0.0.1:2379", usage: "comma list of etcd v3 URLs",
		set: parseEndpoints},
	{flag: "etcd-scheme", file: "etcdScheme",
		usage: "http or https: with --etcd-host and --etcd-port the older way to name one endpoint",
		set:   oneOf(func(c *config) *string { return &c.etcdLegacy.scheme }, "http", "https")},
	{flag: "etcd-host", file: "etcdHost", literal: true, endpoints: true,
		usage: "host of that one endpoint",
		set:   text(func(c *config) *string { return &c.etcdLegacy.host })},
	{flag: "etcd-port", file: "etcdPort", number: true, usage: "port of that one endpoint",
		set: parseEtcdPort},
	{flag: "etcd-username", env: calicoEnv("ETCD_USERNAME"), file: "etcdUsername", literal: true,
		usage: "user name for etcd", set: text(func(c *config) *string { return &c.etcdUsername })},
	{env: calicoEnv("ETCD_PASSWORD"), file: "etcdPassword", literal: true, secret: true,
		usage: "password for etcd", set: text(func(c *config) *string { return &c.etcdPassword })},
	{flag: "etcd-password-file", file: "etcdPasswordFile", literal: true,
		usage: "file with the password for etcd on its first line", set: parsePasswordFile},
	{flag: "etcd-ca-cert-file", env: calicoEnv("ETCD_CA_CERT_FILE"), file: "etcdCACertFile",
		literal: true, usage: "PEM file of the authority that signed etcd's certificate",
		set: regularFile(func(c *config) *string { return &c.etcdCAFile })},
	{flag: "etcd-cert-file", env: calicoEnv("ETCD_CERT_FILE"), file: "etcdCertFile", literal: true,
		usage: "PEM file of our client certificate",
		set:   regularFile(func(c *config) *string { return &c.etcdCertFile })},
	{flag: "etcd-key-file", env: calicoEnv("ETCD_KEY_FILE"), file: "etcdKeyFile", literal: true,
		usage: "PEM file of our client key",
		set:   regularFile(func(c *config) *string { return &c.etcdKeyFile })},
	{flag: "datastore-type", env: calicoEnv("DATASTORE_TYPE"), file: "datastoreType",
		usage: "where Calico's data are: etcdv3 or kubernetes; default: etcdv3 where etcd's " +
			"endpoints are given, else kubernetes in a pod or with --kubeconfig or " +
			"--k8s-api-endpoint, else etcdv3",
		set: oneOf(func(c *config) *string { return &c.datastoreType }, etcdv3, inKubernetes)},
	{flag: "kubeconfig", env: calicoEnv("KUBECONFIG"), file: "kubeconfig", literal: true,
		usage: "kubeconfig file by which the Kubernetes API is reached; default: in a pod its own",
		set:   text(func(c *config) *string { return &c.kube.Kubeconfig })},
	{flag: "k8s-current-context", env: calicoEnv("K8S_CURRENT_CONTEXT"), file: "k8sCurrentContext",
		literal: true, usage: "context of the kubeconfig; default: its current one",
		set: text(func(c *config) *string { return &c.kube.Context })},
	{flag: "k8s-api-endpoint", env: calicoEnv("K8S_API_ENDPOINT"), file: "k8sAPIEndpoint",
		literal: true, usage: "URL of the Kubernetes API, instead of its Service address or what " +
			"the kubeconfig has", set: parseK8sEndpoint},
	{flag: "k8s-ca-file", env: calicoEnv("K8S_CA_FILE"), file: "k8sCAFile", literal: true,
		usage: "PEM file of the authority that signed the Kubernetes API's certificate",
		set:   regularFile(func(c *config) *string { return &c.kube.CAFile })},
	{flag: "k8s-cert-file", env: calicoEnv("K8S_CERT_FILE"), file: "k8sCertFile", literal: true,
		usage: "PEM file of our client certificate for it",
		set:   regularFile(func(c *config) *string { return &c.kube.CertFile })},
	{flag: "k8s-key-file", env: calicoEnv("K8S_KEY_FILE"), file: "k8sKeyFile", literal: true,
		usage: "PEM file of its key",
		set:   regularFile(func(c *config) *string { return &c.kube.KeyFile })},
	{env: calicoEnv("K8S_API_TOKEN"), file: "k8sAPIToken", literal: true, secret: true,
		usage: "token for the Kubernetes API",
		set:   text(func(c *config) *string { return &c.kube.Token })},
	{flag: "k8s-insecure-skip-tls-verify", env: calicoEnv("K8S_INSECURE_SKIP_TLS_VERIFY"),
		file: "k8sInsecureSkipTLSVerify", def: "false", boolean: true,
		usage: "do not check the Kubernetes API's certificate",
		set:   truth(func(c *config) *bool { return &c.kube.Insecure })},
	{flag: "calico-api-group", env: []string{"CALICO_API_GROUP"}, file: "calicoAPIGroup",
		usage: "API group of Calico's data in Kubernetes: " + kubernetes.GroupV1 + " or " +
			kubernetes.GroupV3 + "; default: the first of these that there is",
		set: oneOf(func(c *config) *string { return &c.apiGroup }, kubernetes.GroupV1,
			kubernetes.GroupV3)},
	{flag: "use-pod-cidr", env: calicoEnv("USE_POD_CIDR"), file: "usePodCIDR", def: "false",
		boolean: true, usage: "take the podCIDRs of Kubernetes' Nodes for their blocks, as where " +
			"calico-node has USE_POD_CIDR",
		set: truth(func(c *config) *bool { return &c.usePodCIDR })},
	{flag: "k8s-node-ref", env: []string{"CALICO_K8S_NODE_REF"}, file: "k8sNodeRef", literal: true,
		usage: "what Kubernetes calls this node, for endpoints of services; default: --node-name",
		set:   text(func(c *config) *string { return &c.nodeRef })},

	{flag: "reflector-namespace", file: "reflectorNamespace", literal: true,
		usage: "namespace where agents and reflector controllers meet in the Kubernetes " +
			"datastore; default: in a pod its own, else " + defaultReflectorNamespace,
		set: parseReflectorNamespace},
	{flag: "learn", file: "learn", list: true, def: "bgp", usage: "where routes to other nodes " +
		"come from: bgp, ipam (Calico's blocks, no BGP at all), or bgp,ipam (BGP goes first, " +
		"IPAM where BGP has no route)", set: parseLearn},
	{flag: "host-address", file: "hostAddress", list: true, def: "peerip,node",
		usage: "where --learn ipam finds the address of a host, the first that has one: peerip " +
			"(published by the host), node (the Calico Node)", set: parseHostAddress},
	{flag: "hosts-prefix", file: "hostsPrefix", literal: true, def: calico.DefaultHosts,
		usage: "prefix of the keys HOST/peerip/ipv4/1 and HOST/peerip/ipv6/1 in etcd",
		set:   keyPrefix(func(c *config) *string { return &c.hostsPrefix })},
	{flag: "blocks-prefix", file: "blocksPrefix", literal: true, def: calico.DefaultBlocks,
		usage: "prefix of Calico's blocks in etcd; ipv4/block at its end is ignored",
		set:   parseBlocksPrefix},

	{flag: "uplink", file: "uplink",
		usage: "interface of the data plane that the agent sets up and publishes: name or " +
			"index; default: none",
		set: text(func(c *config) *string { return &c.uplink })},
	{flag: "uplink-address", file: "uplinkAddress", list: true,
		usage: "address of the uplink with the length of its subnet, at most one per family",
		set:   parseUplinkAddresses},
	{flag: "uplink-publish", file: "uplinkPublish", def: "lease",
		usage: "publish the uplink's addresses under --hosts-prefix: lease (they expire when " +
			"this node dies), static (they stay), off",
		set: oneOf(func(c *config) *string { return &c.uplinkPublish }, "lease", "static", "off")},
	{flag: "uplink-ttl", file: "uplinkTTL", def: "60s",
		usage: "how long a published address outlives its node, 5s to 24h",
		set:   duration(func(c *config) *time.Duration { return &c.uplinkTTL }, "5s", "24h")},

	{flag: "publish-status", file: "publishStatus", def: "false", boolean: true,
		usage: "publish for a reflector controller, under /vpp-route-agent/nodes/ in etcd or in " +
			"a Lease in Kubernetes, how this node's sessions stand, and answer its questions",
		set: truth(func(c *config) *bool { return &c.publishStatus })},

	{flag: "external", file: "external", list: true,
		usage: "sources of external configuration, the first wins: etcd, grpc; default: none",
		set:   parseExternal},
	{flag: "external-etcd-prefix", file: "externalEtcdPrefix", literal: true,
		def: external.DefaultPrefix, usage: "prefix of the keys NODE/config/... in etcd",
		set: parseExternalPrefix},
	{flag: "external-grpc-socket", file: "externalGRPCSocket", literal: true,
		def: defaultExternalSocket, usage: "socket of --external grpc",
		set: parseOwnSocket(func(c *config) *string { return &c.externalSocket })},
	{flag: "external-grpc-listen", file: "externalGRPCListen", usage: "address where --external " +
		"grpc listens as well, for clients with certificates; one without a port gets 9111; " +
		"default: none",
		set: listener(func(c *config) *string { return &c.externalListen }, "0.0.0.0:9111")},
	{flag: "external-grpc-policy", live: true, file: "externalGRPCPolicy", literal: true,
		usage: "YAML file that says what which client of --external grpc may write; default: " +
			"root everything, others nothing",
		set: regularFile(func(c *config) *string { return &c.externalPolicyFile })},
	{flag: "external-table-0", file: "externalTable0", usage: "let external configuration add " +
		"routes to the default table: override (before BGP) or backup (after BGP); default: no",
		set: oneOf(func(c *config) *string { return &c.externalTable0 }, "override", "backup")},
	{flag: "external-retries", file: "externalRetries", def: "0", usage: "how often the data " +
		"plane may refuse an item of external configuration before it is FAILED, until something " +
		"changes; 0: it is tried again without end",
		set: number(func(c *config) *int { return &c.externalRetries }, 0, math.MaxInt32)},

	{flag: "dataplane", file: "dataplane", def: "vpp",
		usage: "where routes are programmed: vpp, kernel or none (peers and RIB only)",
		set:   oneOf(func(c *config) *string { return &c.dataplane }, "vpp", "kernel", "none")},
	{flag: "vpp-socket", file: "vppSocket", literal: true, def: defaultVPPSocket,
		usage: "VPP's binary API socket",
		set:   parseSocket(func(c *config) *string { return &c.vppSocket })},
	{flag: "vpp-stats-socket", file: "vppStatsSocket", literal: true, def: "/run/vpp/stats.sock",
		usage: "socket of VPP's statistics segment, for all that counts packets",
		set:   parseSocket(func(c *config) *string { return &c.vppStatsSocket })},
	{flag: "fib-source", file: "fibSource", literal: true, def: "vpp-route-agent",
		usage: "name of our FIB source in VPP, at most 54 bytes; a new name makes the old routes " +
			"orphans", set: parseSourceName},
	// 0 is VPP's class of special entries.
	{flag: "fib-source-priority", file: "fibSourcePriority", def: "136",
		usage: "priority of our FIB source, 1 (best) to 255: of several sources with a route for " +
			"a prefix, the lowest forwards; API has 128, CLI 129, DHCP 176",
		set: number(func(c *config) *uint8 { return &c.fibPriority }, 1, 255)},
	{flag: "kernel-table", file: "kernelTable", def: "254",
		usage: "Linux routing table for --dataplane kernel", set: parseTable},
	{flag: "kernel-protocol", file: "kernelProtocol", def: "179",
		usage: "protocol number that marks our Linux routes; not one that another program uses",
		set:   parseProtocol},
	// 0 is left out: connected routes have it, and IPv6 turns it into 1024.
	{flag: "kernel-metric", file: "kernelMetric", def: "1050",
		usage: "metric of our Linux routes; a route of another program with the same metric " +
			"would be replaced",
		set: number(func(c *config) *uint32 { return &c.kernelMetric }, 1, math.MaxUint32)},
	{flag: "kernel-elevated-metric", file: "kernelElevatedMetric", def: "512",
		usage: "metric of our Linux routes to addresses in live migration; it must be below " +
			"Felix' for the workloads of this node, and below --kernel-metric",
		set: number(func(c *config) *uint32 { return &c.kernelElevated }, 1, math.MaxUint32)},
	{flag: "tunnels", file: "tunnels", def: "felix",
		usage: "whose the tunnel devices of --dataplane kernel are: felix, or own where no Felix " +
			"runs on the node", set: oneOf(func(c *config) *string { return &c.tunnels }, "felix",
			"own")},

	{flag: "prefix-limit", live: true, file: "prefixLimit", list: true,
		usage: "most paths that a peer may send, by class: mesh, global, node and " +
			"local-workload, as in \"global=1000,local-workload=10\"; no limit for a class that " +
			"is not named. A peer that sends more is cut off",
		set: parsePrefixLimits},
	{flag: "prefix-limit-retry", file: "prefixLimitRetry", def: gobgp.DefaultLimitRetry.String(),
		usage: "how long such a peer stays cut off before it is tried again",
		set:   duration(func(c *config) *time.Duration { return &c.limitRetry }, "1s", "24h")},
	{flag: "password-dir", file: "passwordDir", literal: true,
		usage: "directory with the passwords of BGP peers, each in the file <secret>/<key>; " +
			"default: in a pod, and in the Kubernetes datastore, Kubernetes' Secrets, else " +
			defaultPasswordDir,
		set: parseDir(func(c *config) *string { return &c.passwordDir })},
	{flag: "secret-namespace", env: calicoEnv("NAMESPACE"), file: "secretNamespace", literal: true,
		def:   "kube-system",
		usage: "namespace of the Kubernetes Secrets with passwords of BGP peers",
		set:   parseNamespace},
	{flag: "gobgp-listen", file: "gobgpListen", def: defaultGoBGPListen,
		usage: "address of GoBGP's gRPC for the gobgp CLI; one without a port gets 50051; " +
			"\"off\" for none",
		set: listener(func(c *config) *string { return &c.gobgpListen }, defaultGoBGPListen)},
	{flag: "gobgp-write", file: "gobgpWrite", def: "false", boolean: true,
		usage: "let gRPC clients change BGP; otherwise they can only read",
		set:   truth(func(c *config) *bool { return &c.gobgpWrite })},
	{flag: "metrics-listen", file: "metricsListen", def: defaultMetricsListen,
		usage: "address of /metrics, /healthz, /readyz, /debug/pprof and the status page; one " +
			"without a port gets 9179; \"off\" for none",
		set: listener(func(c *config) *string { return &c.metricsListen }, defaultMetricsListen)},
	{flag: "metrics-routes", file: "metricsRoutes", def: "0",
		usage: "up to how many routes, and next hops, have counters of packets and bytes in " +
			"/metrics, those with the most addresses first; at most 4096, and VPP's alone",
		set: number(func(c *config) *int { return &c.metricsRoutes }, 0, route.MaxLookups)},
	{flag: "status-page", file: "statusPage", def: "true", boolean: true,
		usage: "serve a page for browsers on --metrics-listen: on loopback, and elsewhere to " +
			"clients with certificates (--tls-client-ca-file) alone",
		set: truth(func(c *config) *bool { return &c.statusPage })},
	{flag: "query-listen", file: "queryListen", usage: "address where clients with certificates " +
		"may ask about this node, as explain --from, diff and audit --ask-agents do, and change " +
		"nothing; one without a port gets " + queryPort + "; default: none",
		set: listener(func(c *config) *string { return &c.queryListen }, "0.0.0.0:"+queryPort)},
	{flag: "tls-cert-file", file: "tlsCertFile", literal: true,
		usage: "PEM file of our certificate: --metrics-listen and --gobgp-listen use TLS on " +
			"addresses other than loopback",
		set: regularFile(func(c *config) *string { return &c.tlsCertFile })},
	{flag: "tls-key-file", file: "tlsKeyFile", literal: true, usage: "PEM file of its key",
		set: regularFile(func(c *config) *string { return &c.tlsKeyFile })},
	{flag: "tls-client-ca-file", file: "tlsClientCAFile", literal: true,
		usage: "PEM file of authorities: clients must show a certificate that one of them signed",
		set:   regularFile(func(c *config) *string { return &c.tlsClientCAFile })},
	{flag: "plaintext", file: "plaintext", def: "false", boolean: true,
		usage: "let --metrics-listen and --gobgp-listen leave this host without TLS; otherwise " +
			"that is refused", set: truth(func(c *config) *bool { return &c.plaintext })},
	{flag: "admin-socket", file: "adminSocket", literal: true, def: defaultAdminSocket,
		usage: "unix socket of the client commands, such as status",
		set:   parseOwnSocket(func(c *config) *string { return &c.adminSocket })},
	{flag: "state-dir", file: "stateDir", literal: true, def: defaultStateDir,
		usage: "where the journal of programmed routes and the last good copy of Calico's data " +
			"are kept", set: parseDir(func(c *config) *string { return &c.stateDir })},
	{flag: "recorder-size", file: "recorderSize", def: "256",
		usage: "MiB of the state directory that the recorder may take, at least 8; 0: nothing is " +
			"recorded", set: recorderSize(func(c *config) *int64 { return &c.recorderSize })},
	{flag: "recorder-updates-size", file: "recorderUpdatesSize", def: "64",
		usage: "MiB that it may take besides for what BGP peers send, at least 8; 0: none of " +
			"that is recorded",
		set: recorderSize(func(c *config) *int64 { return &c.updatesSize })},
	{flag: "deferral", live: true, file: "deferral", def: "30s",
		usage: "how long after start stale routes wait for peers that have not finished (RFC " +
			"4724 Selection_Deferral_Timer)",
		set: duration(func(c *config) *time.Duration { return &c.deferral }, "0s", "1h")},
	{flag: "encap-pause", live: true, file: "encapPause", def: "2s",
		usage: "how long packets to a pool leave as before when its ipipMode or vxlanMode " +
			"changes, so that other nodes can make their tunnels",
		set: duration(func(c *config) *time.Duration { return &c.encapPause }, "0s", "1m")},
	{flag: "spot-checks", live: true, file: "spotChecks", def: "5",
		usage: "routes per second that are compared with the data plane, in rotation; 0 none, at " +
			"most 1000", set: number(func(c *config) *int { return &c.spotChecks }, 0, 1000)},
	{flag: "drift", live: true, file: "drift", def: "repair",
		usage: "what to do with routes of ours that another program changed or removed: repair " +
			"or only report them",
		set: oneOf(func(c *config) *string { return &c.drift }, "repair", "report")},
	{flag: "guard-share", live: true, file: "guardShare", def: "0.5",
		usage: "share of an origin's routes, 0 to 1, above which deletions that come from " +
			"listing etcd anew are held for 60 s; 0 holds none", set: parseGuardShare},
	{flag: "guard-minimum", live: true, file: "guardMinimum", def: "100",
		usage: "number of routes above which they are held",
		set:   number(func(c *config) *int { return &c.guardMinimum }, 0, math.MaxInt32)},
	{flag: "withdraw-without-dataplane", live: true, file: "withdrawWithoutDataplane", def: "false",
		boolean: true, usage: "announce nothing while the data plane has been away for 5 s, " +
			"and then until it has all routes again",
		set: truth(func(c *config) *bool { return &c.withdraw })},
	{flag: "log-level", live: true, file: "logLevel", def: "info",
		usage: "debug, info, warn or error; overrides logSeverityScreen of Calico's " +
			"BGPConfiguration",
		set: oneOf(func(c *config) *string { return &c.logLevel }, "debug", "info", "warn",
			"error")},
	{flag: "log-format", file: "logFormat", def: "text", usage: "text or json",
		set: oneOf(func(c *config) *string { return &c.logFormat }, "text", "json")},
}

const (
	defaultStateDir       = "/var/lib/vpp-route-agent"
	defaultVPPSocket      = "/run/vpp/api.sock"
	defaultAdminSocket    = "/run/vpp-route-agent/agent.sock"
	defaultExternalSocket = "/run/vpp-route-agent/external.sock"
	defaultPasswordDir    = "/etc/vpp-route-agent/passwords"
	defaultGoBGPListen    = "127.0.0.1:50051"
	defaultMetricsListen  = "127.0.0.1:9179"
	queryPort             = "9178"
)

// calicoEnv gives the names under which calico-node takes a variable: the prefixed form wins, even
// when it is empty.
func calicoEnv(name string) []string { return []string{"CALICO_" + name, name} }

// name is how an error message calls the setting.
func (s setting) name() string {
	if s.flag != "" {
		return "--" + s.flag
	}
	return s.env[len(s.env)-1]
}

// envNames are all environment variables of the setting, the strongest first.
func (s setting) envNames() []string {
	if s.flag == "" {
		return s.env
	}
	return append([]string{ownEnvPrefix + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))},
		s.env...)
}
