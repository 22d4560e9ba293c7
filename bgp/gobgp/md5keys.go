package gobgp

import (
	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// withoutKeys takes TCP MD5 keys out of what GoBGP's API answers: a peer's configuration has them
// in clear (ListPeer, WatchEvent), and every process of the host's network reaches the API.
func withoutKeys() grpc.ServerOption {
	return grpc.ChainStreamInterceptor(
		func(
			srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
		) error {
			return next(srv, keylessStream{stream})
		})
}

type keylessStream struct{ grpc.ServerStream }

func (s keylessStream) SendMsg(m any) error { return s.ServerStream.SendMsg(keyless(m)) }

// keyless returns m without keys. One that has any is copied: GoBGP sends the same event to several
// watchers.
func keyless(m any) any {
	switch r := m.(type) {
	case *api.ListPeerResponse:
		if hasKey(r.GetPeer()) {
			c := proto.Clone(r).(*api.ListPeerResponse)
			dropKey(c.Peer)
			return c
		}
	case *api.WatchEventResponse:
		if hasKey(r.GetPeer().GetPeer()) {
			c := proto.Clone(r).(*api.WatchEventResponse)
			dropKey(c.GetPeer().GetPeer())
			return c
		}
	case *api.ListPeerGroupResponse:
		if r.GetPeerGroup().GetConf().GetAuthPassword() != "" {
			c := proto.Clone(r).(*api.ListPeerGroupResponse)
			c.PeerGroup.Conf.AuthPassword = ""
			return c
		}
	}
	return m
}

func hasKey(p *api.Peer) bool {
	return p.GetConf().GetAuthPassword() != "" || p.GetState().GetAuthPassword() != ""
}

func dropKey(p *api.Peer) {
	if p.Conf != nil {
		p.Conf.AuthPassword = ""
	}
	if p.State != nil {
		p.State.AuthPassword = ""
	}
}
