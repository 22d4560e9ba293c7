package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/yamldoc"
	"vpp-route-agent/ipam"
)

// config is everything an operator can say, as text turned into types. Where a setting comes from
// more than one place the order is flag, then environment, then file, then default.
type config struct {
	configFile string

	nodeName   string
	routerID   string
	clusterIPs netip.Prefix

	etcdEndpoints      []string
	etcdUsername       string
	etcdPassword       string
	etcdCAFile         string
	etcdCertFile       string
	etcdKeyFile        string
	datastoreType      string // etcdv3 or inKubernetes
	kube               kubernetes.ClientConfig
	apiGroup           string // of Calico's data; "": the one that there is
	usePodCIDR         bool
	nodeRef            string // what Kubernetes calls this node; "": nodeName
	etcdLegacy         legacyEndpoint
	learnBGP           bool
	learnIPAM          bool
	hostAddress        []ipam.AddressSource
	hostsPrefix        string
	blocksPrefix       string
	external           []string // sources, the first wins
	externalPrefix     string
	externalSocket     string // of gRPC, as what follows
	externalListen     string // "": the socket alone
	externalPolicyFile string // "": grpc.DefaultPolicy
	externalTable0     string // "override", "backup" or ""
	externalRetries    int    // 0: without end
	uplink             string
	uplinkAddress      []netip.Prefix
	uplinkPublish      string
	uplinkTTL          time.Duration
	publishStatus      bool
	nextHops           []netip.Addr
	servicesVia        agent.ServicesVia
	dataplane          string
	vppSocket          string
	vppStatsSocket     string
	fibSource          string
	fibPriority        uint8
	kernelTable        uint32
	tunnels            string // felix or own
	kernelProtocol     uint8
	kernelMetric       uint32
	kernelElevated     uint32
	prefixLimits       map[bgp.Scope]uint32
	limitRetry         time.Duration
	passwordDir        string
	secretsIn          string // namespace
	reflectorsIn       string // namespace; "": kubernetesStore says which
	gobgpListen        string
	gobgpWrite         bool
	metricsListen      string
	metricsRoutes      int
	statusPage         bool
	tlsCertFile        string
	tlsKeyFile         string
	tlsClientCAFile    string
	plaintext          bool
	queryListen        string // "": none
	adminSocket        string
	stateDir           string
	recorderSize       int64 // bytes; 0: nothing is recorded
	updatesSize        int64 // bytes besides for what peers send; 0: none of that is
	deferral           time.Duration
	encapPause         time.Duration
	spotChecks         int
	drift              string
	guardShare         float64
	guardMinimum       int
	withdraw           bool
	logLevel           string
	ownLogLevel        bool // the operator set logLevel
	logFormat          string
	texts              map[string]string // what was given for each setting, or its default
}

// addFlags defines the flags of all settings.
func addFlags(flags *pflag.FlagSet) { addSettings(flags, func(setting) bool { return true }) }

// addSettings defines --config and the flags of some settings.
func addSettings(flags *pflag.FlagSet, wanted func(setting) bool) {
	flags.String("config", "", "YAML file with any of these settings, keys as in "+
		"docs/configuration.md (environment: "+ownEnvPrefix+"CONFIG)")
	for _, s := range settings {
		if s.secret || !wanted(s) {
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
			flags.StringSlice(s.flag, strings.Split(s.def, ","), usage)
		case s.list:
			flags.StringSlice(s.flag, nil, usage)
		default:
			flags.Var(&flagText{s.def, typeOf(s)}, s.flag, usage)
		}
	}
}

// flagText is the text of a flag, which its setting parses; --help shows the type.
type flagText struct{ text, kind string }

func (f *flagText) String() string        { return f.text }
func (f *flagText) Set(text string) error { f.text = text; return nil }
func (f *flagText) Type() string          { return f.kind }

// typeOf is what --help calls a value such as the default.
func typeOf(s setting) string {
	if _, err := strconv.ParseFloat(s.def, 64); err == nil || s.number {
		return "number"
	}
	if _, err := time.ParseDuration(s.def); err == nil {
		return "duration"
	}
	return "string"
}

// environment is os.LookupEnv, or a stand-in for it.
type environment func(name string) (string, bool)

// loadConfig reads flags, environment and file. Its errors are one sentence each, meant for the
// operator.
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
	if err := c.findDatastore(env, given); err != nil {
		return config{}, err
	}
	return c, c.check(given)
}

// lookup returns the value from the place of highest precedence; source names that place, "" if
// none has a value.
func lookup(s setting, flags *pflag.FlagSet, env environment, file map[string]string) (
	value, source string) {
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

// readConfigFile returns the file's keys as text. Unknown keys are errors: a misspelt one would
// otherwise be a silent default.
func readConfigFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := readFile(path, maxSettings)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	var doc any
	asJSON, err := yamldoc.One(raw)
	if err == nil {
		err = json.Unmarshal(asJSON, &doc)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	keys, ok := doc.(map[string]any)
	if !ok && doc != nil {
		return nil, fmt.Errorf("configuration file %s: want a key and a value on each line, such "+
			"as `nodeName: node-1`", path)
	}
	known := map[string]setting{}
	for _, s := range settings {
		known[s.file] = s
	}
	out := map[string]string{}
	for key, v := range keys {
		s, ok := known[key]
		if !ok {
			return nil, fmt.Errorf("configuration file %s: unknown key %q%s", path, key,
				didYouMean(key, slices.Collect(maps.Keys(known))))
		}
		if _, isText := v.(string); s.literal && !isText {
			return nil, fmt.Errorf("configuration file %s: key %s: YAML does not read the value "+
				"as text; put it in quotes", path, key)
		}
		if _, isList := v.([]any); isList && !s.list {
			return nil, fmt.Errorf("configuration file %s: key %s: want one value, not a list",
				path, key)
		}
		if out[key], err = scalar(v); err != nil {
			return nil, fmt.Errorf("configuration file %s: key %s: %w", path, key, err)
		}
	}
	return out, nil
}

// scalar turns a YAML value into the text that the environment would hold; a list becomes a comma
// list.
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
			if _, isList := e.([]any); isList {
				return "", errors.New("want no list inside the list")
			}
			s, err := scalar(e)
			if err != nil {
				return "", err
			}
			parts[i] = s
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("want a text, a number, true or false, or where several are " +
		"allowed a list")
}

// nodeNameForm is a DNS subdomain, the form of every Calico resource name.
var nodeNameForm = regexp.MustCompile(
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// maxNodeName is what a DNS subdomain can have (RFC 1123).
const maxNodeName = 253

// findNodeName follows calico-node (node/pkg/lifecycle/utils): NODENAME, the nodename file,
// HOSTNAME, the host's own name.
func (c *config) findNodeName(env environment) error {
	c.nodeName = strings.TrimSpace(c.nodeName)
	if c.nodeName == "" {
		file := "/var/lib/calico/nodename"
		if v, ok := env("CALICO_NODENAME_FILE"); ok {
			file = v
		}
		raw, err := readFile(file, maxSettings)
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
		return fmt.Errorf("node name %q is no name that Calico allows: lower-case letters, "+
			"digits, '-' and '.'; set --node-name", c.nodeName)
	}
	if len(c.nodeName) > maxNodeName {
		return fmt.Errorf("node name %.20s... is longer than %d bytes, the most that Calico "+
			"allows; set --node-name", c.nodeName, maxNodeName)
	}
	return nil
}

// check refuses settings that contradict each other; given holds what the operator set.
func (c *config) check(given map[string]bool) error {
	if err := c.checkDatastore(given); err != nil {
		return err
	}
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
	if err := onlyWith("vpp", "vpp-socket", "vpp-stats-socket", "fib-source",
		"fib-source-priority", "metrics-routes"); err != nil {
		return err
	}
	if err := onlyWith("kernel", "kernel-table", "kernel-protocol", "kernel-metric",
		"kernel-elevated-metric", "tunnels"); err != nil {
		return err
	}
	if c.kernelElevated >= c.kernelMetric {
		return fmt.Errorf("--kernel-elevated-metric %d must be below --kernel-metric %d",
			c.kernelElevated, c.kernelMetric)
	}
	if err := c.checkListeners(); err != nil {
		return err
	}
	if len(c.external) > 0 && c.externalSocket == c.adminSocket {
		return fmt.Errorf("--external-grpc-socket and --admin-socket are both %s", c.adminSocket)
	}
	if c.gobgpWrite && c.gobgpListen == "" {
		return errors.New("--gobgp-write conflicts with --gobgp-listen off")
	}
	for _, f := range []string{"external-etcd-prefix", "external-grpc-socket",
		"external-grpc-listen", "external-grpc-policy", "external-table-0",
		"external-retries"} {
		if given[f] && len(c.external) == 0 {
			return fmt.Errorf("--%s has no meaning without --external", f)
		}
	}
	if c.withdraw && c.dataplane == "none" {
		return errors.New("--withdraw-without-dataplane has no meaning with --dataplane none")
	}
	if (c.etcdUsername == "") != (c.etcdPassword == "") {
		return errors.New("etcd user name and password must be given together (--etcd-username, " +
			"ETCD_PASSWORD)")
	}
	if (c.etcdCertFile == "") != (c.etcdKeyFile == "") {
		return errors.New("--etcd-cert-file and --etcd-key-file must be given together")
	}
	return nil
}

// journal is where the engine notes what it programmed. Of the kernel's routes it notes none: they
// carry our protocol number and are quickly listed. Addresses and neighbours carry no mark.
func (c config) journal() string {
	if c.dataplane == "none" {
		return ""
	}
	return filepath.Join(c.stateDir, "fib.journal")
}

// attempts are the limits of fib.Config.
func (c config) attempts() map[route.Origin]int {
	return map[route.Origin]int{route.External: c.externalRetries}
}

func (c config) etcd() etcd.Config {
	return etcd.Config{
		Endpoints: c.etcdEndpoints, Username: c.etcdUsername, Password: c.etcdPassword,
		CACertFile: c.etcdCAFile, CertFile: c.etcdCertFile, KeyFile: c.etcdKeyFile,
	}
}

// needs are the keys to read: what hosts publish matters only to --learn ipam.
func (c config) needs() calico.Needs {
	n := calico.Needs{NoBGP: !c.learnBGP}
	if c.blocksPrefix != calico.DefaultBlocks {
		n.Blocks = c.blocksPrefix
	}
	if c.learnIPAM {
		// in Kubernetes nobody publishes, and it says that all blocks are needed
		n.Hosts = c.hostsPrefix
	}
	n.VXLAN = !n.AllBlocks() && (c.dataplane == "vpp" || c.ownsTunnels())
	return n
}

// ownsTunnels reports whether the devices and routes of VXLAN pools on Linux are not Felix'.
func (c config) ownsTunnels() bool { return c.dataplane == "kernel" && c.tunnels == "own" }

// agent are the settings that the agent takes while it runs.
func (c config) agent() agent.Settings {
	s := agent.Settings{BGP: c.bgpOptions(), Deferral: c.deferral, EncapPause: c.encapPause,
		WithdrawWithoutDataplane: c.withdraw, ServicesVia: c.servicesVia}
	if c.ownLogLevel {
		s.OwnLogLevel = new(slog.Level)
		_ = s.OwnLogLevel.UnmarshalText([]byte(c.logLevel)) // one of four words that it knows
	}
	return s
}

func (c config) tuning() fib.Tuning {
	return fib.Tuning{
		SpotChecks: c.spotChecks, RepairDrift: c.drift == "repair",
		GuardShare: c.guardShare, GuardMinimum: c.guardMinimum,
	}
}

func (c config) bgpOptions() bgp.Options {
	o := bgp.Options{RouterID: c.routerID, PrefixLimits: c.prefixLimits, ClusterIPs: c.clusterIPs,
		Tunnels: tunnels(c.dataplane), NoWireguard: c.dataplane == "vpp",
		FelixTunnels: c.dataplane == "kernel" && !c.ownsTunnels(), LinuxTunnels: c.ownsTunnels()}
	for _, a := range c.nextHops {
		if a.Is4() {
			o.NextHop4 = a
		} else {
			o.NextHop6 = a
		}
	}
	return o
}
