package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/gobgp"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/ipam"
)

// config is everything an operator can say, as text turned into types. Where a setting comes from more than one place the order is
// flag, then environment, then file, then default.
type config struct {
	configFile string

	nodeName   string
	routerID   string
	clusterIPs netip.Prefix

	etcdEndpoints   []string
	etcdUsername    string
	etcdPassword    string
	etcdCAFile      string
	etcdCertFile    string
	etcdKeyFile     string
	datastoreType   string
	etcdLegacy      legacyEndpoint
	learnBGP        bool
	learnIPAM       bool
	hostAddress     []ipam.AddressSource
	hostsPrefix     string
	blocksPrefix    string
	uplink          string
	uplinkAddress   []netip.Prefix
	uplinkPublish   string
	uplinkTTL       time.Duration
	nextHops        []netip.Addr
	dataplane       string
	vppSocket       string
	vppStatsSocket  string
	fibSource       string
	fibPriority     uint8
	kernelTable     uint32
	kernelProtocol  uint8
	kernelMetric    uint32
	kernelElevated  uint32
	prefixLimits    map[bgp.Scope]uint32
	limitRetry      time.Duration
	passwordDir     string
	secretsIn       string // namespace
	gobgpListen     string
	gobgpWrite      bool
	metricsListen   string
	tlsCertFile     string
	tlsKeyFile      string
	tlsClientCAFile string
	plaintext       bool
	adminSocket     string
	stateDir        string
	deferral        time.Duration
	spotChecks      int
	drift           string
	guardShare      float64
	guardMinimum    int
	withdraw        bool
	logLevel        string
	ownLogLevel     bool // the operator said one
	logFormat       string
	texts           map[string]string // what was given for each setting, or its default
}

// setting is one line of the configuration reference: how a user names it in each place, and what it means.
type setting struct {
	flag    string
	env     []string // first that is set wins; a CALICO_ prefixed form of Calico's own names is put in front
	file    string   // key in the YAML file
	def     string
	usage   string
	secret  bool // not a flag: command lines are visible to every process of the host
	list    bool // a flag that may be given several times
	set     func(c *config, text string) error
	boolean bool
	literal bool // text that the file must give as a string: YAML makes 42798 of 0123456 and true of yes
	live    bool // a change takes effect upon SIGHUP
}

const ownEnvPrefix = "VPP_ROUTE_AGENT_"

// settings is the whole vocabulary, in the order in which --help and the reference print it.
var settings = []setting{
	{flag: "node-name", env: calicoEnv("NODENAME"), file: "nodeName", literal: true, usage: "name of this node in Calico; default: /var/lib/calico/nodename, then the host name in lower case",
		set: text(func(c *config) *string { return &c.nodeName })},
	{flag: "router-id", live: true, env: []string{"CALICO_ROUTER_ID"}, file: "routerID", usage: "BGP identifier: a dotted quad, or `hash` for one made from the node name; default: the node's IPv4 address",
		set: parseRouterID},
	{flag: "advertise-cluster-ips", live: true, env: []string{"CALICO_ADVERTISE_CLUSTER_IPS"}, file: "advertiseClusterIPs", usage: "range of cluster IPs to announce, instead of what BGPConfiguration's serviceClusterIPs says",
		set: parseClusterIPs},
	{flag: "next-hop", live: true, file: "nextHop", list: true, usage: "NEXT_HOP we announce, at most one address per family, instead of the node's BGP address",
		set: parseNextHops},

	{flag: "etcd-endpoints", env: calicoEnv("ETCD_ENDPOINTS"), file: "etcdEndpoints", list: true, def: "http://127.0.0.1:2379", usage: "comma list of etcd v3 URLs",
		set: func(c *config, s string) error { c.etcdEndpoints = strings.Split(s, ","); return nil }},
	{flag: "etcd-scheme", file: "etcdScheme", usage: "http or https: with --etcd-host and --etcd-port the older way to name one endpoint",
		set: oneOf(func(c *config) *string { return &c.etcdLegacy.scheme }, "http", "https")},
	{flag: "etcd-host", file: "etcdHost", literal: true, usage: "host of that one endpoint", set: text(func(c *config) *string { return &c.etcdLegacy.host })},
	{flag: "etcd-port", file: "etcdPort", usage: "port of that one endpoint", set: parseEtcdPort},
	{flag: "etcd-username", env: calicoEnv("ETCD_USERNAME"), file: "etcdUsername", literal: true, usage: "user name for etcd", set: text(func(c *config) *string { return &c.etcdUsername })},
	{env: calicoEnv("ETCD_PASSWORD"), file: "etcdPassword", literal: true, usage: "password for etcd", secret: true, set: text(func(c *config) *string { return &c.etcdPassword })},
	{flag: "etcd-password-file", file: "etcdPasswordFile", literal: true, usage: "file with the password for etcd on its first line", set: parsePasswordFile},
	{flag: "etcd-ca-cert-file", env: calicoEnv("ETCD_CA_CERT_FILE"), file: "etcdCACertFile", literal: true, usage: "PEM file of the authority that signed etcd's certificate", set: text(func(c *config) *string { return &c.etcdCAFile })},
	{flag: "etcd-cert-file", env: calicoEnv("ETCD_CERT_FILE"), file: "etcdCertFile", literal: true, usage: "PEM file of our client certificate", set: text(func(c *config) *string { return &c.etcdCertFile })},
	{flag: "etcd-key-file", env: calicoEnv("ETCD_KEY_FILE"), file: "etcdKeyFile", literal: true, usage: "PEM file of our client key", set: text(func(c *config) *string { return &c.etcdKeyFile })},
	{flag: "datastore-type", env: calicoEnv("DATASTORE_TYPE"), file: "datastoreType", def: "etcdv3", usage: "only etcdv3 is supported", set: oneOf(func(c *config) *string { return &c.datastoreType }, "etcdv3")},

	{flag: "learn", file: "learn", list: true, def: "bgp", usage: "where routes to other nodes come from: bgp, ipam (Calico's blocks, no BGP at all), or bgp,ipam (BGP wins, IPAM carries the node while BGP does not); etcd is an earlier name of ipam",
		set: parseLearn},
	{flag: "host-address", file: "hostAddress", list: true, def: "peerip,node", usage: "where --learn ipam finds the address of a host, the first that has one: peerip (published by the host), node (the Calico Node)",
		set: parseHostAddress},
	{flag: "hosts-prefix", file: "hostsPrefix", literal: true, def: calico.DefaultHosts, usage: "prefix of the keys HOST/peerip/ipv4/1 and HOST/peerip/ipv6/1 in etcd",
		set: keyPrefix(func(c *config) *string { return &c.hostsPrefix })},
	{flag: "blocks-prefix", file: "blocksPrefix", literal: true, def: calico.DefaultBlocks, usage: "prefix of Calico's blocks in etcd; ipv4/block at its end is ignored",
		set: parseBlocksPrefix},

	{flag: "uplink", file: "uplink", usage: "interface of the data plane that is set up, given --uplink-address and published: name or index; default: none", set: text(func(c *config) *string { return &c.uplink })},
	{flag: "uplink-address", file: "uplinkAddress", list: true, usage: "address of the uplink with the length of its subnet, at most one per family", set: parseUplinkAddresses},
	{flag: "uplink-publish", file: "uplinkPublish", def: "lease", usage: "publish the uplink's addresses under --hosts-prefix: lease (they go when this node dies), static (they stay), off",
		set: oneOf(func(c *config) *string { return &c.uplinkPublish }, "lease", "static", "off")},
	{flag: "uplink-ttl", file: "uplinkTTL", def: "60s", usage: "how long a published address outlives its node, 5s to 24h", set: parseUplinkTTL},

	{flag: "dataplane", file: "dataplane", def: "vpp", usage: "where routes are programmed: vpp, kernel or none (peers and RIB only)", set: oneOf(func(c *config) *string { return &c.dataplane }, "vpp", "kernel", "none")},
	{flag: "vpp-socket", file: "vppSocket", literal: true, def: "/run/vpp/api.sock", usage: "VPP's binary API socket", set: parseSocket(func(c *config) *string { return &c.vppSocket })},
	{flag: "vpp-stats-socket", file: "vppStatsSocket", literal: true, def: "/run/vpp/stats.sock", usage: "socket of VPP's statistics segment, which drain --until-idle reads", set: parseSocket(func(c *config) *string { return &c.vppStatsSocket })},
	{flag: "fib-source", file: "fibSource", literal: true, def: "vpp-route-agent", usage: "name of our FIB source in VPP, at most 54 bytes; a new name makes the old routes orphans", set: parseSourceName},
	{flag: "fib-source-priority", file: "fibSourcePriority", def: "136", usage: "priority of our FIB source, 1 (best) to 255: of several sources that have one prefix the lowest forwards; API has 128, CLI 129, DHCP 176",
		set: parsePriority},
	{flag: "kernel-table", file: "kernelTable", def: "254", usage: "Linux routing table for --dataplane kernel", set: parseTable},
	{flag: "kernel-protocol", file: "kernelProtocol", def: "179", usage: "protocol number that marks our Linux routes; not one that another program uses", set: parseProtocol},
	{flag: "kernel-metric", file: "kernelMetric", def: "1050", usage: "metric of our Linux routes; a route of another program with the same metric would be stolen", set: parseMetric(func(c *config) *uint32 { return &c.kernelMetric })},
	{flag: "kernel-elevated-metric", file: "kernelElevatedMetric", def: "512", usage: "metric of our Linux routes to addresses that are on their way to another node (live migration); it must be below Felix' for the workloads of this node, and below --kernel-metric",
		set: parseMetric(func(c *config) *uint32 { return &c.kernelElevated })},

	{flag: "prefix-limit", live: true, file: "prefixLimit", list: true, usage: "most paths that a peer may send, by class: mesh, global, node and local-workload, as in `global=1000,local-workload=10`; a class that is not named has no limit. A peer that sends more is cut off and its routes go",
		set: parsePrefixLimits},
	{flag: "prefix-limit-retry", file: "prefixLimitRetry", def: gobgp.DefaultLimitRetry.String(), usage: "how long such a peer stays cut off before it is tried again", set: parseLimitRetry},
	{flag: "password-dir", file: "passwordDir", literal: true, usage: "directory with the passwords of BGP peers, each in the file <secret>/<key>; default: in a pod the Kubernetes Secrets, else " + defaultPasswordDir,
		set: text(func(c *config) *string { return &c.passwordDir })},
	{flag: "secret-namespace", env: calicoEnv("NAMESPACE"), file: "secretNamespace", literal: true, def: "kube-system", usage: "namespace of the Kubernetes Secrets with passwords of BGP peers",
		set: text(func(c *config) *string { return &c.secretsIn })},
	{flag: "gobgp-listen", file: "gobgpListen", def: defaultGoBGPListen, usage: "address of GoBGP's gRPC for the gobgp CLI; one without a port gets 50051; `off` for none", set: listener(func(c *config) *string { return &c.gobgpListen }, defaultGoBGPListen)},
	{flag: "gobgp-write", file: "gobgpWrite", def: "false", boolean: true, usage: "let gRPC clients change BGP; otherwise they can only read", set: truth(func(c *config) *bool { return &c.gobgpWrite })},
	{flag: "metrics-listen", file: "metricsListen", def: defaultMetricsListen, usage: "address of /metrics, /healthz, /readyz and /debug/pprof; one without a port gets 9179; `off` for none", set: listener(func(c *config) *string { return &c.metricsListen }, defaultMetricsListen)},
	{flag: "tls-cert-file", file: "tlsCertFile", literal: true, usage: "PEM file of our certificate: --metrics-listen and --gobgp-listen speak TLS where they are no loopback address", set: text(func(c *config) *string { return &c.tlsCertFile })},
	{flag: "tls-key-file", file: "tlsKeyFile", literal: true, usage: "PEM file of its key", set: text(func(c *config) *string { return &c.tlsKeyFile })},
	{flag: "tls-client-ca-file", file: "tlsClientCAFile", literal: true, usage: "PEM file of authorities: clients must show a certificate that one of them signed", set: text(func(c *config) *string { return &c.tlsClientCAFile })},
	{flag: "plaintext", file: "plaintext", def: "false", boolean: true, usage: "let --metrics-listen and --gobgp-listen leave this host without TLS; otherwise that is refused", set: truth(func(c *config) *bool { return &c.plaintext })},
	{flag: "admin-socket", file: "adminSocket", literal: true, def: defaultAdminSocket, usage: "unix socket of status, peers and routes", set: parseSocket(func(c *config) *string { return &c.adminSocket })},
	{flag: "state-dir", file: "stateDir", literal: true, def: "/var/lib/vpp-route-agent", usage: "where the journal of programmed routes and the last good copy of Calico's data are kept", set: parseStateDir},
	{flag: "deferral", live: true, file: "deferral", def: "30s", usage: "how long after start stale routes wait for peers that have not finished (RFC 4724 Selection_Deferral_Timer)", set: parseDeferral},
	{flag: "spot-checks", live: true, file: "spotChecks", def: "5", usage: "routes per second that are compared with the data plane, in rotation; 0 none, at most 1000", set: parseSpotChecks},
	{flag: "drift", live: true, file: "drift", def: "repair", usage: "what to do with routes of ours that somebody changed or removed: repair them, or only report them",
		set: oneOf(func(c *config) *string { return &c.drift }, "repair", "report")},
	{flag: "guard-share", live: true, file: "guardShare", def: "0.5", usage: "share of an origin's routes, 0 to 1, above which deletions that come from listing etcd anew are held for 60 s; 0 holds none",
		set: parseGuardShare},
	{flag: "guard-minimum", live: true, file: "guardMinimum", def: "100", usage: "and above how many routes they are held", set: parseGuardMinimum},
	{flag: "withdraw-without-dataplane", live: true, file: "withdrawWithoutDataplane", def: "false", boolean: true, usage: "announce nothing while the data plane has been away for 5 s",
		set: truth(func(c *config) *bool { return &c.withdraw })},
	{flag: "log-level", live: true, file: "logLevel", def: "info", usage: "debug, info, warn or error; given here it goes before logSeverityScreen of Calico's BGPConfiguration", set: oneOf(func(c *config) *string { return &c.logLevel }, "debug", "info", "warn", "error")},
	{flag: "log-format", file: "logFormat", def: "text", usage: "text or json", set: oneOf(func(c *config) *string { return &c.logFormat }, "text", "json")},
}

const (
	defaultAdminSocket   = "/run/vpp-route-agent/agent.sock"
	defaultPasswordDir   = "/etc/vpp-route-agent/passwords"
	defaultGoBGPListen   = "127.0.0.1:50051"
	defaultMetricsListen = "127.0.0.1:9179"
)

// calicoEnv gives the names under which calico-node takes a variable: the prefixed form wins, even when it is empty.
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
	return append([]string{ownEnvPrefix + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))}, s.env...)
}

// addFlags defines the flags of all settings.
func addFlags(flags *pflag.FlagSet) {
	flags.String("config", "", "YAML file with any of these settings, keys as in docs/configuration.md (environment: "+ownEnvPrefix+"CONFIG)")
	for _, s := range settings {
		if s.secret {
			continue
		}
		usage := s.usage
		if len(s.env) > 0 {
			usage += " (environment: " + s.env[len(s.env)-1] + ")"
		}
		switch {
		case s.boolean:
			flags.Bool(s.flag, false, usage)
		case s.list && s.def != "":
			flags.StringSlice(s.flag, []string{s.def}, usage)
		case s.list:
			flags.StringSlice(s.flag, nil, usage)
		default:
			flags.String(s.flag, s.def, usage)
		}
	}
}

// environment is os.LookupEnv, or a stand-in for it.
type environment func(name string) (string, bool)

// loadConfig reads flags, environment and file. Its errors are one sentence each, meant for the operator.
func loadConfig(flags *pflag.FlagSet, env environment) (config, error) {
	c := config{texts: map[string]string{}}
	c.configFile, _ = flags.GetString("config")
	if v, ok := env(ownEnvPrefix + "CONFIG"); ok && !flags.Changed("config") {
		c.configFile = v
	}
	fromFile, err := readConfigFile(c.configFile)
	if err != nil {
		return config{}, err
	}
	given := map[string]bool{}
	for _, s := range settings {
		value, source := lookup(s, flags, env, fromFile)
		given[s.flag] = source != ""
		if value == "" && s.def != "" && source != "" && !slices.Contains(s.env, source) {
			return config{}, fmt.Errorf("%s must not be empty", source)
		}
		if value == "" { // not given, or one of Calico's variables, which may be set and empty
			value, source = s.def, cmp.Or(source, s.name())
		}
		c.texts[s.name()] = value
		if value == "" {
			continue
		}
		if err := s.set(&c, value); err != nil {
			return config{}, fmt.Errorf("%s: %w", source, err)
		}
	}
	if err := c.findNodeName(env); err != nil {
		return config{}, err
	}
	c.ownLogLevel = given["log-level"]
	return c, c.check(given)
}

// lookup finds the strongest place that gives the setting a value; source names that place, "" if there is none.
func lookup(s setting, flags *pflag.FlagSet, env environment, file map[string]string) (value, source string) {
	if s.flag != "" && flags.Changed(s.flag) {
		if s.list {
			values, _ := flags.GetStringSlice(s.flag)
			return strings.Join(values, ","), "--" + s.flag
		}
		return flags.Lookup(s.flag).Value.String(), "--" + s.flag
	}
	for _, name := range s.envNames() {
		if v, ok := env(name); ok {
			return v, name
		}
	}
	if v, ok := file[s.file]; ok {
		return v, "key " + s.file + " of the configuration file"
	}
	return "", ""
}

// readConfigFile returns the file's keys as text. Unknown keys are errors: a misspelt one would otherwise be a silent default.
func readConfigFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	var doc map[string]any
	if err := yaml.UnmarshalStrict(raw, &doc); err != nil {
		return nil, fmt.Errorf("configuration file %s: %s", path, strings.Join(strings.Fields(err.Error()), " "))
	}
	known := map[string]setting{}
	for _, s := range settings {
		known[s.file] = s
	}
	out := map[string]string{}
	for key, v := range doc {
		s, ok := known[key]
		if !ok {
			return nil, fmt.Errorf("configuration file %s: unknown key %q", path, key)
		}
		if _, isText := v.(string); s.literal && !isText {
			return nil, fmt.Errorf("configuration file %s: key %s: YAML does not read the value as text; put it in quotes", path, key)
		}
		if out[key], err = scalar(v); err != nil {
			return nil, fmt.Errorf("configuration file %s: key %s: %w", path, key, err)
		}
	}
	return out, nil
}

// scalar turns a YAML value into the text that the environment would hold; a list becomes a comma list.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			s, err := scalar(e)
			if err != nil {
				return "", err
			}
			parts[i] = s
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("want a text, a number, true or false, or a list of these")
}

// nodeNameForm is a DNS subdomain, the form of every Calico resource name.
var nodeNameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// findNodeName follows calico-node (node/pkg/lifecycle/utils): NODENAME, the nodename file, HOSTNAME, the host's own name.
func (c *config) findNodeName(env environment) error {
	c.nodeName = strings.TrimSpace(c.nodeName)
	if c.nodeName == "" {
		file := "/var/lib/calico/nodename"
		if v, ok := env("CALICO_NODENAME_FILE"); ok {
			file = v
		}
		raw, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("node name: %w", err)
		}
		c.nodeName = strings.TrimSpace(string(raw))
	}
	if c.nodeName == "" {
		host, _ := env("HOSTNAME")
		if host == "" {
			host, _ = os.Hostname()
		}
		c.nodeName = strings.ToLower(strings.TrimSpace(host))
	}
	if !nodeNameForm.MatchString(c.nodeName) {
		return fmt.Errorf("node name %q is no name that Calico allows: lower-case letters, digits, '-' and '.'; set --node-name", c.nodeName)
	}
	return nil
}

// check refuses settings that contradict each other; given holds what the operator really said.
func (c *config) check(given map[string]bool) error {
	if err := c.checkLearn(given); err != nil {
		return err
	}
	if err := c.etcdLegacy.into(c, given); err != nil {
		return err
	}
	onlyWith := func(dataplane string, flags ...string) error {
		for _, f := range flags {
			if given[f] && c.dataplane != dataplane {
				return fmt.Errorf("--%s has no meaning with --dataplane %s", f, c.dataplane)
			}
		}
		return nil
	}
	if err := onlyWith("vpp", "vpp-socket", "vpp-stats-socket", "fib-source", "fib-source-priority"); err != nil {
		return err
	}
	if err := onlyWith("kernel", "kernel-table", "kernel-protocol", "kernel-metric", "kernel-elevated-metric"); err != nil {
		return err
	}
	if c.kernelElevated >= c.kernelMetric {
		return fmt.Errorf("--kernel-elevated-metric %d must be below --kernel-metric %d", c.kernelElevated, c.kernelMetric)
	}
	if err := c.checkListeners(); err != nil {
		return err
	}
	if c.gobgpWrite && c.gobgpListen == "" {
		return errors.New("--gobgp-write conflicts with --gobgp-listen off")
	}
	if c.withdraw && c.dataplane == "none" {
		return errors.New("--withdraw-without-dataplane has no meaning with --dataplane none")
	}
	if (c.etcdUsername == "") != (c.etcdPassword == "") {
		return errors.New("etcd user name and password must be given together (--etcd-username, ETCD_PASSWORD)")
	}
	if (c.etcdCertFile == "") != (c.etcdKeyFile == "") {
		return errors.New("--etcd-cert-file and --etcd-key-file must be given together")
	}
	return nil
}
