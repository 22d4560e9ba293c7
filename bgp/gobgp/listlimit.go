package gobgp

import (
	"path"
	"strings"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// maxLists is how many lists are answered over gRPC at a time. Each is a copy of a table, which
	// lasts until its client has read all of it.
	maxLists = 4
	listWait = 2 * time.Second // for one of them to end
	// maxBatch is how many destinations are collected, at most, until one more has them sent.
	// GoBGP's own default is all of them.
	maxBatch = 100

	helloTime  = 5 * time.Second // for a client to begin
	idleTime   = time.Minute     // for a client without a call
	maxStreams = 16              // of one connection
)

// limits keep clients from the memory of the agent, and from its file descriptors: every process of
// the host's network reaches the API.
func limits() []grpc.ServerOption {
	return []grpc.ServerOption{limitLists(), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(helloTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime})}
}

// limitLists makes a list wait, and refuses it in the end, while others are read.
func limitLists() grpc.ServerOption {
	slots := make(chan struct{}, maxLists)
	return grpc.ChainStreamInterceptor(
		func(
			srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
		) error {
			if !strings.HasPrefix(path.Base(info.FullMethod), "List") {
				return next(srv, stream)
			}
			late := time.NewTimer(listWait)
			defer late.Stop()
			select {
			case slots <- struct{}{}:
			case <-late.C:
				return status.Errorf(codes.ResourceExhausted,
					"%d lists are being read; try again when one has ended", maxLists)
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
			defer func() { <-slots }()
			return next(srv, batchedStream{stream})
		})
}

type batchedStream struct{ grpc.ServerStream }

func (s batchedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if r, ok := m.(*api.ListPathRequest); ok && err == nil {
		if r.BatchSize == 0 || r.BatchSize > maxBatch {
			r.BatchSize = maxBatch
		}
	}
	return err
}
