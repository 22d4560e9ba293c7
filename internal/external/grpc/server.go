package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/proto/contiv/rpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/external/proto/ligato/generic"
)

const (
	// ClientKey of a call's metadata names the client whose items these are, as in Ligato.
	ClientKey = "datasrc"
	// AtomicKey with any value but "false" asks for all or nothing.
	AtomicKey = "all-or-nothing"
	// SeqnumKey of an answer's header has the number of the transaction, as in Ligato.
	SeqnumKey = "seqnum"

	maxMessage = 16 << 20 // bytes; 10 000 routes are 400 KB
	maxStreams = 100      // calls at once, of one connection
	// maxCalls are calls at once, of one client, and its undecided all-or-nothing transactions.
	maxCalls = 64
	// maxConnections is for one client; maxTCP for all listening on TCP, known or not yet.
	maxConnections, maxTCP = 64, 1024
	// idleTime is how long a connection without a call stays open, answerPatience how long a
	// client may take to read an answer, and helloTime to say who it is.
	idleTime, answerPatience, helloTime = 30 * time.Minute, time.Minute, 20 * time.Second
	// maxErrors bounds how many items an error names, since it travels in a header, and maxLabels
	// how many bytes an item's labels have.
	maxErrors = 20
	maxLabels = 4096
	// maxName is the length of a source's name.
	maxName = 63
	// answerTime is what an answer has to reach its client before the deadline of the call.
	answerTime = time.Second
)

// All is what the server shows besides what its own clients want.
type All interface {
	// Sources returns what all sources want, those of this server included, by rank.
	Sources() []external.Source
	// Verdicts returns how all items stand.
	Verdicts() []external.Verdict
	// Changed returns a channel that is closed when Verdicts may have changed.
	Changed() <-chan struct{}
}

// Server answers the services of Ligato and Contiv.
type Server struct {
	source *Source
	calls  *quota
	all    All
	policy atomic.Pointer[Policy]
	log    *slog.Logger
	grpc   *grpc.Server

	rpc.UnimplementedDataChangeServiceServer
	rpc.UnimplementedDataResyncServiceServer
	configurator.UnimplementedConfiguratorServiceServer
	generic.UnimplementedManagerServiceServer
	generic.UnimplementedMetaServiceServer
}

// NewServer returns a server that does nothing until Serve. Over TCP it speaks as conf says; nil:
// plain text.
func NewServer(source *Source, all All, p Policy, conf *tls.Config, log *slog.Logger) *Server {
	s := &Server{source: source, all: all, calls: newQuota(maxCalls, "calls under way"),
		log: log.With("component", "external", "source", Name)}
	s.SetPolicy(p)
	s.grpc = grpc.NewServer(grpc.Creds(newHandshake(conf)),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		grpc.InTapHandle(s.beginCall), grpc.UnaryInterceptor(holdUntilSent),
		grpc.StreamInterceptor(holdStream), grpc.StatsHandler(dropped{}),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.ConnectionTimeout(helloTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime}))
	rpc.RegisterDataChangeServiceServer(s.grpc, s)
	rpc.RegisterDataResyncServiceServer(s.grpc, s)
	configurator.RegisterConfiguratorServiceServer(s.grpc, s)
	generic.RegisterManagerServiceServer(s.grpc, s)
	generic.RegisterMetaServiceServer(s.grpc, s)
	reflection.Register(s.grpc)
	return s
}

// SetPolicy replaces the policy for the calls that come from now on.
func (s *Server) SetPolicy(p Policy) { s.policy.Store(&p) }

// Serve answers on l until ctx ends. Calls that wait then end with an error. It may be called for
// several listeners.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	if l.Addr().Network() != "unix" {
		l = netutil.LimitListener(l, maxTCP)
	}
	if err := s.grpc.Serve(listener{l}); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// do carries a change out for a client and says what came of it as gRPC does.
func (s *Server) do(ctx context.Context, c Change) ([]Result, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	policy := s.policy.Load()
	client, name := policy.caller(ctx)
	if client == nil {
		return nil, status.Errorf(codes.PermissionDenied,
			"the policy has no entry for %s, who may only read", name)
	}
	within, err := clientName(md)
	if err != nil {
		return nil, err
	}
	c.Client, c.Source = client.source(""), client.source(within)
	if policy.givesAway(c.Source, client) {
		return nil, status.Errorf(codes.PermissionDenied,
			"the policy has %s for another client", c.Source)
	}
	client.limit(c.Puts)
	c.Refuses = client.refuses
	if v := md.Get(AtomicKey); len(v) > 0 && v[0] != "false" {
		c.Atomic = true
	}
	early, cancel := beforeDeadline(ctx)
	defer cancel()
	txn, results, err := s.source.Do(early, c)
	answer := errorOf(results, err)
	if txn != 0 {
		header := metadata.Pairs(SeqnumKey, strconv.FormatInt(txn, 10))
		if err := grpc.SetHeader(ctx, header); err != nil && ctx.Err() == nil {
			s.log.Warn("the number of a transaction cannot be sent", "err", err)
		}
		s.log.Info("transaction", "txn", txn, "client", name, "of", c.Source, "puts", len(c.Puts),
			"deletes", len(c.Deletes), "replace", c.Replace,
			"answer", status.Code(answer), "err", err)
	}
	return results, answer
}

// beforeDeadline has a call end early enough for its client to hear that it goes on: at the
// deadline itself the client stops listening.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	early := min(time.Until(deadline)/5, answerTime)
	return context.WithDeadline(ctx, deadline.Add(-early))
}

// clientName returns whose items a call is about, "" if it does not say.
func clientName(md metadata.MD) (string, error) {
	v := md.Get(ClientKey)
	if len(v) == 0 || v[0] == "" {
		return "", nil
	}
	if !isName(v[0]) {
		return "", status.Errorf(codes.InvalidArgument, "%s %.80q is no name of a client",
			ClientKey, v[0])
	}
	return v[0], nil
}

// errorOf returns the error of a call, nil if all its items are accepted.
func errorOf(results []Result, err error) error {
	code := codes.FailedPrecondition
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, ErrUnanswered):
		code = codes.Unavailable
	case errors.Is(err, ErrRefused), errors.Is(err, ErrUndecided):
		code = codes.ResourceExhausted
	case errors.Is(err, ErrRolledBack):
		code = codes.Aborted
	}
	if code != codes.FailedPrecondition && code != codes.Aborted {
		return status.Error(code, err.Error())
	}
	var texts []string
	var details []*generic.UpdateResult
	failed := 0
	for _, r := range results {
		if !r.Failed() && (err == nil || r.Verdict.State != external.Pending) {
			continue
		}
		if failed++; failed <= maxErrors {
			r.Key = short(r.Key)
			texts = append(texts, fmt.Sprintf("%s (%s): %s", r.Key, operation(r),
				short(statusOf(*r.Verdict).Message)))
			details = append(details, resultOf(r))
		}
	}
	if failed == 0 && err == nil {
		return nil
	}
	text := "KeyErrors: [" + strings.Join(texts, ", ")
	if failed > maxErrors {
		text += fmt.Sprintf(", and %d more", failed-maxErrors)
	}
	if text += "]"; err != nil {
		text = err.Error() + ": " + text
	}
	out := status.New(code, text)
	for _, d := range details {
		if with, err := out.WithDetails(d); err == nil {
			out = with
		}
	}
	return out.Err()
}

// short bounds what a client can have the server send in a header.
func short(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// operation is what failed, in Ligato's words.
func operation(r Result) string {
	switch {
	case r.refused:
		return "VALIDATE"
	case r.Deleted:
		return "DELETE"
	}
	return "CREATE"
}

// resultOf is a result as generic clients see it.
func resultOf(r Result) *generic.UpdateResult {
	op := generic.UpdateResult_CREATE
	if r.Deleted {
		op = generic.UpdateResult_DELETE
	}
	return &generic.UpdateResult{Key: r.Key, Id: idOf(r.Key), Op: op, Status: statusOf(*r.Verdict)}
}

func statusOf(v external.Verdict) *generic.ItemStatus {
	return &generic.ItemStatus{Status: v.State.String(),
		Message: asText(strings.Join(v.Details, "; "))}
}
