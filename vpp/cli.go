package vpp

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.fd.io/govpp/binapi/vlib"
)

// CLI is a connection to VPP's debug CLI, apart from that of the agent, over the binary API. An
// answer is one message, which VPP allocates as a whole in its API segment, 16 MiB by default, and
// a full segment ends VPP: ask for nothing that grows with the routes.
type CLI struct{ conn *conn }

// View is something to look at in VPP: the commands that show it, together.
type View struct {
	Name     string
	Commands []string
}

// Views are what shows how VPP forwards. None grows with the routes; Routes does.
var Views = []View{
	{"version", []string{"show version verbose", "show plugins", "show clock", "show threads"}},
	{"interfaces", []string{"show interface", "show interface address", "show ip neighbors"}},
	{"fib-summary", []string{"show fib source", "show ip table", "show ip6 table",
		summary4, summary6}},
	{"tunnels", []string{"show ipip tunnel", "show vxlan tunnel", "show teib"}},
	{"errors", []string{"show errors", "show logging"}},
}

const (
	summary4 = "show ip fib summary"
	summary6 = "show ip6 fib summary"
)

// maxListed is the number of routes up to which Routes lists them: a megabyte of text, during which
// VPP's workers stand still for some milliseconds.
const maxListed = 2000

// DialCLI connects to the VPP of c. Only Socket, Dial and ReplyTimeout matter.
func DialCLI(ctx context.Context, c Config) (*CLI, error) {
	c = c.withDefaults()
	c.ClientName = defaultName + "-cli"
	conn, err := dial(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("vpp: %w", err)
	}
	return &CLI{conn}, nil
}

// Close ends the connection.
func (c *CLI) Close() { c.conn.close() }

// Run returns what VPP prints for a command. VPP carries out one at a time.
func (c *CLI) Run(ctx context.Context, command string) (string, error) {
	reply, err := c.conn.command(ctx, command)
	return reply, wrap(err, "vpp")
}

// command returns what VPP's command line prints.
func (c *conn) command(ctx context.Context, text string) (string, error) {
	reply, err := ask[vlib.CliInbandReply](ctx, c, &vlib.CliInband{Cmd: text})
	if err = cmp.Or(err, vppError(reply.Retval)); err != nil {
		return "", fmt.Errorf("%s: %w", text, err)
	}
	return strings.TrimRight(reply.Reply, "\x00"), nil
}

// Show returns what a view's commands print, each below its name. A command that this VPP does not
// have, for want of a plugin, says so.
func (c *CLI) Show(ctx context.Context, v View) (string, error) {
	b := &strings.Builder{}
	for _, command := range v.Commands {
		text, err := c.Run(ctx, command)
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintf(b, "vpp# %s\n%s\n", command, text)
	}
	return b.String(), nil
}

// Routes lists the FIBs of all tables, unless they are so large that VPP would notice.
func (c *CLI) Routes(ctx context.Context) (string, error) {
	all := 0
	for _, command := range []string{summary4, summary6} {
		text, err := c.Run(ctx, command)
		if err != nil {
			return "", err
		}
		all += routesIn(text)
	}
	if all > maxListed {
		return fmt.Sprintf("VPP has %d routes. More than %d are not listed here, since VPP's "+
			"workers stand still meanwhile: `vppctl show ip fib`, or `vpp-route-agent audit`, "+
			"which compares them.\n", all, maxListed), nil
	}
	return c.Show(ctx, View{Commands: []string{"show ip fib", "show ip6 fib"}})
}

var lengthAndCount = regexp.MustCompile(`(?m)^\s*\d+\s+(\d+)\s*$`)

// routesIn adds up what a summary says: a line for each prefix length.
func routesIn(summary string) (all int) {
	for _, line := range lengthAndCount.FindAllStringSubmatch(summary, -1) {
		n, _ := strconv.Atoi(line[1])
		all += n
	}
	return all
}
