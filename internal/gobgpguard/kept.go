package main

import _ "embed"

// What is kept of a peer's routes, and for how long (docs/decisions/0011-gobgp-guard.md). Each edit is held by a test in bgp/gobgp that fails without it:
// replaced_test.go, gracefulrestart_test.go, TestHoldTimeZero.
var (
	//go:embed keptserver.go.txt
	keptServer []byte
	//go:embed kepttable.go.txt
	keptTable []byte
)

var keptAdded = map[string][]byte{
	"pkg/server/kept.go":         keptServer,
	"internal/pkg/table/kept.go": keptTable,
}

var keptEdits = []edit{
	{ // RFC 4271 §3.1, §9.1.2: a route with our AS in its AS_PATH is not used, and replaces the peer's earlier one all the same
		"pkg/server/peer.go",
		"\n\t\t\t\tif hasOwnASLoop(localAS, allowOwnAS, aspath) {\n\t\t\t\t\tpath.SetRejected(true)\n",
		"\n\t\t\t\tif hasOwnASLoop(localAS, allowOwnAS, aspath) {\n\t\t\t\t\tpath.SetRejected(true)\n\t\t\t\t\tpaths = peer.withoutEarlier(paths, path)\n",
	},
	{ // RFC 4456 §8: so does one with our ORIGINATOR_ID
		"pkg/server/peer.go",
		"\n\t\t\t\t\t\t\t\"Data\":         path})\n\t\t\t\t\tpath.SetRejected(true)\n",
		"\n\t\t\t\t\t\t\t\"Data\":         path})\n\t\t\t\t\tpath.SetRejected(true)\n\t\t\t\t\tpaths = peer.withoutEarlier(paths, path)\n",
	},
	{ // RFC 4271 §3.1: who was sent a route must hear that it is gone, also where what takes its place is not sent since it has the peer's AS
		"pkg/server/server.go",
		"\n\tif path = filterpath(peer, path, old); path == nil {\n",
		"\n\tif path = s.orWithdrawal(peer, path, old, filterpath(peer, path, old)); path == nil {\n",
	},
	{ // RFC 4724 §4.2: a peer that restarts has its restart time; an attempt to connect that fails ends nothing
		"pkg/server/server.go",
		"PeerRestarting && nextState == bgp.BGP_FSM_IDLE\n",
		"PeerRestarting && nextState == bgp.BGP_FSM_IDLE && e.endsRestart()\n",
	},
	{ // nor does GoBGP wait on when the peer is taken out by hand, where it was idle as in other states
		"pkg/server/fsm.go",
		"\n\t\t\t\t\t// stop idle hold timer\n\t\t\t\t\tidleHoldTimer.Stop()\n",
		"\n\t\t\t\t\t// stop idle hold timer\n\t\t\t\t\tidleHoldTimer.Stop()\n\t\t\t\t\treturn bgp.BGP_FSM_IDLE, newfsmStateReason(fsmAdminDown, nil, nil)\n",
	},
	{ // RFC 4724 §4: a session that was up again and does not break but ends, ends the restart
		"pkg/server/server.go",
		"\n\t\t\t} else {\n\t\t\t\tdrop = peer.configuredRFlist()\n",
		"\n\t\t\t} else {\n\t\t\t\tpeer.stopPeerRestarting()\n\t\t\t\tdrop = peer.configuredRFlist()\n",
	},
	{ // RFC 4724 §3: after a connection that broke we forward as before, as after no restart at all. GoBGP says so only after a restart
		"pkg/server/fsm.go",
		"NewCapGracefulRestartTuple(rf.State.Family, restarting))\n\t\t\t\t\tpConf",
		"NewCapGracefulRestartTuple(rf.State.Family, restarting || cameBack(pConf)))\n\t\t\t\t\tpConf",
	},
	{ // RFC 4724 §4.2: what is kept of a peer that restarted goes at once when it is back, unless its OPEN says that it kept forwarding
		"pkg/server/server.go",
		"\n\t\t// PeerDown\n",
		"\n\t\tif nextState == bgp.BGP_FSM_ESTABLISHED {\n\t\t\ts.dropNotForwarded(peer)\n\t\t}\n\n\t\t// PeerDown\n",
	},
	{ // RFC 4724 §3: the capability is of one session. GoBGP adds each to those of earlier sessions
		"pkg/server/fsm.go",
		"\n\t\t\t\t\tgr, ok := fsm.capMap[bgp.BGP_CAP_GRACEFUL_RESTART]\n",
		"\n\t\t\t\t\tforgetRestart(fsm.pConf)\n\t\t\t\t\tgr, ok := fsm.capMap[bgp.BGP_CAP_GRACEFUL_RESTART]\n",
	},
	{ // a peer whose prefix limit, timers or TTL change in a session that stays up keeps what was negotiated in it
		"pkg/server/peer.go",
		"\n\tpeer.fsm.pConf.AfiSafis = c\n",
		"\n\tpeer.fsm.pConf.AfiSafis = withNegotiated(c, peer.fsm.pConf.AfiSafis)\n",
	},
	// A path has a number among those of its prefix as long as its peer has it, used or not. GoBGP forgets which when a path that is not used is replaced
	// or withdrawn, and a prefix with a number out stays in the table for ever. One line for what replaces it, one for what gives the number back.
	{
		"internal/pkg/table/adj.go",
		"\n\t\t\told = d.knownPathList[idx]\n",
		"\n\t\t\told = d.knownPathList[idx]\n\t\t\tpath.takeNumber(old)\n",
	},
	{
		"internal/pkg/table/destination.go",
		"\n\t\tp := dest.explicitWithdraw(logger, newPath)\n\t\tif p != nil && newPath.IsDropped() {\n\t\t\tif id := p.GetNlri().PathLocalIdentifier(); id != 0 {\n\t\t\t\tdest.localIdMap.Unflag(uint(id))\n\t\t\t}\n\t\t}\n",
		"\n\t\tdest.explicitWithdraw(logger, newPath)\n\t\tdest.giveBackNumber(newPath)\n",
	},
	{ // RFC 4271 §4.2: with a hold time of 0 there are no keepalives, and no time that a write may take; then it is the one that we offered
		"pkg/server/fsm.go",
		"\n\t\terr = conn.SetWriteDeadline(time.Now().Add(time.Second * time.Duration(fsm.pConf.Timers.State.NegotiatedHoldTime)))\n",
		"\n\t\terr = conn.SetWriteDeadline(time.Now().Add(writeTime(fsm.pConf)))\n",
	},
}
