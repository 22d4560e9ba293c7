package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	external "vpp-route-agent/internal/external/grpc"
	"vpp-route-agent/internal/external/proto/ligato/configurator"
	"vpp-route-agent/internal/yamldoc"
)

// externalChange is a command that has the agent carry out what a file says.
type externalChange struct {
	file, socket, client string
	delete, replace      bool
	waitDone, atomic     bool
	timeout              time.Duration
}

// externalChangeCommands are those that call --external grpc of the agent.
func externalChangeCommands() []*cobra.Command {
	var put externalChange
	del, resync := externalChange{delete: true}, externalChange{replace: true}
	return []*cobra.Command{
		put.command("put", "Create or replace the items in a file"),
		del.command("del", "Delete the items in a file"),
		resync.command("resync", "Make the items in a file all that the client wants"),
	}
}

func (e *externalChange) command(name, short string) *cobra.Command {
	c := &cobra.Command{
		Use: name + " -f FILE|-", Short: short,
		Long: short + `,
over --external grpc of the agent. The file is Ligato's configuration in YAML or JSON; several YAML
documents count as one. The command ends when the data plane has answered for each item: with exit
status 0 if none is refused. An item may still be PENDING then; --wait waits for those, too.`,
		Example: "  vpp-route-agent external " + name + ` -f - <<'EOF'
  vppConfig:
    vrfs:
    - {id: 7, label: tenant}
    routes:
    - {vrfId: 7, dstNetwork: 10.20.1.0/24, nextHopAddr: 10.9.0.7}
  EOF`,
		Args: arguments(0, 0), RunE: e.run,
	}
	const env = ownEnvPrefix + "EXTERNAL_GRPC_SOCKET"
	f := c.Flags()
	f.StringVarP(&e.file, "filename", "f", "", "file with the items; - for standard input")
	f.StringVar(&e.socket, "external-grpc-socket", cmp.Or(os.Getenv(env), defaultExternalSocket),
		"socket of the agent's --external grpc (environment: "+env+")")
	f.StringVar(&e.client, "client", "", "name of the client whose items these are")
	f.BoolVar(&e.waitDone, "wait", false, "wait until no item is PENDING")
	f.BoolVar(&e.atomic, "all-or-nothing", false, "change nothing unless all items are CONFIGURED")
	f.DurationVar(&e.timeout, "timeout", time.Minute, "how long to wait for the data plane")
	return c
}

func (e *externalChange) run(cmd *cobra.Command, _ []string) error {
	if e.socket == "" {
		return usageError{errors.New("--external-grpc-socket must not be empty")}
	}
	if e.timeout <= 0 {
		return usageError{errors.New("--timeout must be longer than 0")}
	}
	text, err := readFileOr(cmd, e.file)
	if err != nil {
		return usageError{err}
	}
	config, err := decodeConfig(text)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", e.file, err)}
	}
	conn, err := grpc.NewClient("unix:"+e.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), e.timeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, external.ClientKey, e.client)
	if e.atomic {
		ctx = metadata.AppendToOutgoingContext(ctx, external.AtomicKey, "true")
	}
	var header metadata.MD
	c := configurator.NewConfiguratorServiceClient(conn)
	if e.delete {
		_, err = c.Delete(ctx, &configurator.DeleteRequest{Delete: config, WaitDone: e.waitDone},
			grpc.Header(&header))
	} else {
		_, err = c.Update(ctx, &configurator.UpdateRequest{Update: config, FullResync: e.replace,
			WaitDone: e.waitDone}, grpc.Header(&header))
	}
	if err == nil {
		_, err = io.WriteString(cmd.OutOrStdout(), "transaction "+
			strings.Join(header.Get(external.SeqnumKey), "")+"\n")
		return err
	}
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && len(header) == 0 {
		return fmt.Errorf("no agent with --external grpc answers on %s: %s", e.socket, s.Message())
	}
	if strings.HasPrefix(s.Message(), "KeyErrors") { // Ligato's text, and nothing before it
		return fmt.Errorf("some items failed; the agent has taken the others: %s", s.Message())
	}
	return errors.New(s.Message())
}

var ofProtobuf = regexp.MustCompile(`^proto:[ \x{a0}](syntax error )?\(line \d+:\d+\): `)

// decodeConfig takes Ligato's configuration in YAML or JSON. Several documents are as if all their
// items were in one.
func decodeConfig(text []byte) (*configurator.Config, error) {
	docs, err := yamldoc.All(text)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, errors.New("it is empty; {} stands for no items")
	}
	config := &configurator.Config{}
	for i, doc := range docs {
		more := &configurator.Config{}
		if err := protojson.Unmarshal(doc, more); err != nil {
			// Its lines are those of the JSON.
			err = errors.New(ofProtobuf.ReplaceAllString(err.Error(), ""))
			if len(docs) > 1 {
				err = fmt.Errorf("document %d: %w", i+1, err)
			}
			return nil, err
		}
		proto.Merge(config, more)
	}
	return config, nil
}
