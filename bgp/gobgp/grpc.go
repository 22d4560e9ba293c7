package gobgp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"strings"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vpp-route-agent/bgp"
)

// confined answers a call of GoBGP's API that panics with an error. What a call changes it changes
// in GoBGP's own goroutine, where nothing is recovered.
func (s *Speaker) confined() []grpc.ServerOption {
	recovered := func(method string, err *error) {
		if v := recover(); v != nil {
			what := packet.DescribePanic(v)
			s.log.Error("a call of GoBGP's API panicked", "call", method, "panic", what)
			*err = status.Error(codes.Internal, what)
		}
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(
			func(
				ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
			) (out any, err error) {
				defer recovered(info.FullMethod, &err)
				return next(ctx, req)
			}),
		grpc.ChainStreamInterceptor(
			func(
				srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
				next grpc.StreamHandler,
			) (err error) {
				defer recovered(info.FullMethod, &err)
				return next(srv, stream)
			}),
	}
}

// readOnly allows only the calls of GoBGP's API that read: GetBgp, List…, WatchEvent. The API has
// no authorisation of its own, and any process that reaches the socket could rewrite the RIB.
func readOnly() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(
			func(
				ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
			) (any, error) {
				if err := allowRead(info.FullMethod); err != nil {
					return nil, err
				}
				return next(ctx, req)
			}),
		grpc.ChainStreamInterceptor(
			func(
				srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
				next grpc.StreamHandler,
			) error {
				if err := allowRead(info.FullMethod); err != nil {
					return err
				}
				return next(srv, stream)
			}),
	}
}

func allowRead(method string) error {
	name := path.Base(method)
	if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") || name == "WatchEvent" {
		return nil
	}
	return status.Errorf(codes.PermissionDenied,
		"%s is refused: this GoBGP is kept equal to Calico's resources and its API is read-only",
		name)
}

// checkGRPC reports a gRPC address that cannot be had, before GoBGP does so in several lines of
// log. It removes the unix sockets that a process which is gone has left: binding to them would
// fail. A socket that is served is left alone.
func checkGRPC(addrs string) error {
	for _, a := range strings.Split(addrs, ",") {
		file, ok := strings.CutPrefix(a, "unix://")
		if !ok {
			l, err := net.Listen("tcp", a)
			if err != nil {
				return fmt.Errorf("gobgp: gRPC: %w", err)
			}
			l.Close()
			continue
		}
		info, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("gobgp: gRPC address %s: not a socket", a)
		}
		if c, err := net.Dial("unix", file); err == nil {
			c.Close()
			return fmt.Errorf("gobgp: gRPC address %s: another process listens there", a)
		}
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("gobgp: gRPC address %s: %w", a, err)
		}
	}
	return nil
}

// removeForeign looks at the prefixes for which a local path appeared that may not be ours, removes
// what is not, and puts ours back where it was replaced. It asks GoBGP again, because the events
// are older than what this goroutine did since.
func (s *Speaker) removeForeign(ctx context.Context) {
	for _, prefix := range s.learned.takeSuspects() {
		if s.applied.speaker == nil {
			return
		}
		own, announced := announcementOf(prefix, s.applied.announced)
		intact := false
		for _, p := range s.localPaths(ctx, prefix) {
			if announced && p.identifier == 0 && p.nextHop == own.NextHop &&
				p.localPref == own.LocalPref {
				intact = true
				continue
			}
			s.learned.foreign.Add(1)
			s.log.Warn("removing a path that was added over gRPC", "prefix", prefix,
				"next_hop", p.nextHop)
			if announced && p.identifier == 0 {
				continue // replaced ours; putting ours back replaces it in turn
			}
			a := bgp.Announcement{Prefix: prefix, NextHop: anyNextHop(prefix)}
			if err := s.deletePath(ctx, a, p.identifier); err != nil {
				s.log.Warn("removing a foreign path", "prefix", prefix, "err", err)
			}
		}
		if announced && !intact {
			p, err := pathOf(own)
			if err == nil {
				err = s.applied.server.ChangePaths([]server.OwnPath{ownPath(p, own)})
			}
			if err != nil {
				s.log.Warn("announcing again", "prefix", prefix, "err", err)
			}
		}
	}
}

// anyNextHop is a next hop of the prefix's family; a withdrawal must carry one and it does not
// matter which.
func anyNextHop(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return netip.MustParseAddr("2001:db8::1")
}

// localPath is what identifies one of our own paths.
type localPath struct {
	identifier uint32
	nextHop    netip.Addr
	localPref  uint32
}

// localPaths lists the paths of prefix that no peer sent.
func (s *Speaker) localPaths(ctx context.Context, prefix netip.Prefix) []localPath {
	var out []localPath
	req := &api.ListPathRequest{
		TableType: api.TableType_GLOBAL,
		Family:    familyOf(prefix.Addr()),
		Prefixes:  []*api.TableLookupPrefix{{Prefix: prefix.String()}},
	}
	err := s.applied.server.ListPath(ctx, req, func(d *api.Destination) {
		for _, p := range d.Paths {
			w := pathOfAPI(p)
			if w.Peer.IsValid() {
				continue
			}
			a := attributesOf(w.Attributes)
			hop, _ := nextHopOf(prefix, a.nextHops)
			out = append(out, localPath{
				identifier: p.Identifier, nextHop: hop, localPref: a.localPref,
			})
		}
	})
	if err != nil {
		s.log.Warn("listing local paths", "prefix", prefix, "err", err)
	}
	return out
}
