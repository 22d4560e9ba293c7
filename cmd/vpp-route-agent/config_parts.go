package main

import (
	"log/slog"
	"path/filepath"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/fib"
)

// journal is where the engine notes what it programmed. The kernel's routes need none: they carry
// our protocol number and are quickly listed.
func (c config) journal() string {
	if c.dataplane != "vpp" {
		return ""
	}
	return filepath.Join(c.stateDir, "fib.journal")
}

func (c config) etcd() etcd.Config {
	return etcd.Config{
		Endpoints: c.etcdEndpoints, Username: c.etcdUsername, Password: c.etcdPassword,
		CACertFile: c.etcdCAFile, CertFile: c.etcdCertFile, KeyFile: c.etcdKeyFile,
	}
}

// needs are the keys to read: what hosts publish matters only to --learn etcd.
func (c config) needs() calico.Needs {
	n := calico.Needs{NoBGP: !c.learnBGP}
	if c.blocksPrefix != calico.DefaultBlocks {
		n.Blocks = c.blocksPrefix
	}
	if c.learnEtcd {
		n.Hosts = c.hostsPrefix
	}
	return n
}

// agent are the settings that the agent takes while it runs.
func (c config) agent() agent.Settings {
	s := agent.Settings{BGP: c.bgpOptions(), Deferral: c.deferral,
		WithdrawWithoutDataplane: c.withdraw}
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
	o := bgp.Options{RouterID: c.routerID, PrefixLimits: c.prefixLimits, ClusterIPs: c.clusterIPs}
	for _, a := range c.nextHops {
		if a.Is4() {
			o.NextHop4 = a
		} else {
			o.NextHop6 = a
		}
	}
	return o
}
