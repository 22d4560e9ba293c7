package main

import _ "embed"

// What goes over the wire as from BIRD where GoBGP's API has no way (docs/decisions/0011-gobgp-guard.md). Each edit is held by a test that fails
// without it.
var (
	//go:embed table.go.txt
	tableWire []byte
	//go:embed server.go.txt
	serverWire []byte
)

var wireAdded = map[string][]byte{
	"internal/pkg/table/wire.go": tableWire,
	"pkg/server/wire.go":         serverWire,
}

var wireEdits = []edit{
	{ // RFC 4271 §4.3: a prefix that is announced and withdrawn in one UPDATE is announced
		"internal/pkg/table/table_manager.go",
		"\n\tfor _, nlri := range dels {\n",
		"\n\tfor _, nlri := range withoutAnnounced(dels, pathList) {\n",
	},
	{ // RFC 4456 §8: ORIGINATOR_ID and CLUSTER_LIST are put on what is reflected, not on own routes nor on those of eBGP peers
		"internal/pkg/table/path.go",
		"\n\t\tif peer.RouteReflector.Config.RouteReflectorClient {\n",
		"\n\t\tif peer.RouteReflector.Config.RouteReflectorClient && path.IsIBGP() {\n",
	},
	{ // RFC 4456 §8: what has our cluster ID is not reflected; a peer that had another path before must hear that it is gone
		"pkg/server/server.go",
		"\t\t\t\t\t\t\t\t\"ClusterID\": clusterID,\n\t\t\t\t\t\t\t\t\"Data\":      path})\n\t\t\t\t\t\treturn nil\n",
		"\t\t\t\t\t\t\t\t\"ClusterID\": clusterID,\n\t\t\t\t\t\t\t\t\"Data\":      path})\n\t\t\t\t\t\treturn withdrawalOf(path, old)\n",
	},
	{ // RFC 4271 §5.1.5, RFC 7606 §7.5, §7.9, §7.10: what only iBGP peers may say is discarded from others
		"pkg/server/fsm.go",
		"\n\t\t\t\tif err = table.UpdatePathAttrs4ByteAs(h.fsm.logger, body); err != nil {\n",
		"\n\t\t\t\tif isEBGP && !isConfed {\n\t\t\t\t\tbody.PathAttributes = fromOutside(body.PathAttributes)\n\t\t\t\t}\n" +
			"\t\t\t\tif err = table.UpdatePathAttrs4ByteAs(h.fsm.logger, body); err != nil {\n",
	},
	{ // RFC 5492: what is offered is what is used here, in BIRD's order
		"pkg/server/fsm.go",
		"\n\t\tcaps = append(caps, capAddPathFromConfig(pConf))\n\t}\n\n\treturn caps\n",
		"\n\t\tcaps = append(caps, capAddPathFromConfig(pConf))\n\t}\n\n\treturn offered(caps)\n",
	},
	// RFC 7911, for sending: what a peer has is known exactly (server.go.txt), so that it can be taken back. One line for where that is kept, one for its
	// beginning, one for what goes out, two for changes, one for what a first dump has.
	{
		"pkg/server/peer.go",
		"\ntype peer struct {\n",
		"\ntype peer struct {\n\tsent     map[sentPath]struct{}\n\toutgoing *outgoing // see outgoing.go\n",
	},
	{
		"pkg/server/server.go",
		"\ntype BgpServer struct {\n",
		"\ntype BgpServer struct {\n\tseveral bool // see SendSeveralPaths\n",
	},
	{
		"pkg/server/server.go",
		"\n\t\tif nextState == bgp.BGP_FSM_ESTABLISHED {\n\t\t\t// update for export policy\n",
		"\n\t\tif nextState == bgp.BGP_FSM_ESTABLISHED {\n\t\t\tpeer.sent = nil\n\t\t\t// update for export policy\n",
	},
	{
		"pkg/server/server.go",
		"\tpeer.fsm.outgoingCh.In() <- &fsmOutgoingMsg{\n\t\tPaths:        paths,\n\t\tNotification: notification,\n\t\tStayIdle:     stayIdle,\n\t}\n",
		"\tpeer.queue(&fsmOutgoingMsg{\n\t\tPaths:        peer.account(paths),\n\t\tNotification: notification,\n\t\tStayIdle:     stayIdle,\n\t})\n",
	},
	{
		"pkg/server/server.go",
		"\n\tfamily := newPath.GetRouteFamily()\n\tfor _, targetPeer := range s.neighborMap {\n",
		"\n\tfamily := newPath.GetRouteFamily()\n\tallChanges := &changes{dsts: dsts}\n\tfor _, targetPeer := range s.neighborMap {\n",
	},
	{
		"pkg/server/server.go",
		"\n\t\tif targetPeer.isAddPathSendEnabled(f) {\n",
		"\n\t\tif s.sendPaths(targetPeer, f, allChanges) {\n\t\t} else if targetPeer.isAddPathSendEnabled(f) {\n",
	},
	{
		"pkg/server/server.go",
		"[]*table.Path {\n\tif peer.isAddPathSendEnabled(family) {\n",
		"[]*table.Path {\n\tif peer.isAddPathSendEnabled(family) && s.several {\n",
	},
}
