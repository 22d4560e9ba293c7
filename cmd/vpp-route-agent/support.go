package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/support"
)

// supportCall is a call of support.
type supportCall struct {
	socket, file string
	patience     time.Duration

	cfg      config
	cfgError error             // why cfg has defaults alone
	running  map[string]string // the agent's settings in force; nil: it did not tell
	agent    *adminclient.Client
}

const (
	// maxPart bounds a file of the archive, before compression: 150 000 routes have room.
	maxPart = 64 << 20
	// defaultConfigFile is that of the Debian package's unit.
	defaultConfigFile = "/etc/vpp-route-agent/agent.yaml"
	logLines          = 20000
	slowest           = 100 // changes
	keptSegments      = 2   // of the recorder's, each no longer than maxPart
	// settingsPatience bounds the wait for the settings of an agent that hangs.
	settingsPatience = 3 * time.Second
)

func supportCommand() *cobra.Command {
	var s supportCall
	c := &cobra.Command{
		Use:   "support [-o FILE|-]",
		Short: "Write an archive with all that is needed to find out what is wrong with a node",
		Long: `Write an archive (tar.gz) with what the agent shows: status, routes, tunnels, plan,
external items, log, metrics, health, settings, goroutines and heap; with VPP's own view or the
kernel's, the journal of systemd's unit, the newest records of the recorder, and what else lies in
the state directory. README.txt in it lists the files. Also when the agent has ended or hangs: what
cannot be had within --timeout is missing, and NAME.error.txt says why.

Passwords, tokens and keys of the settings, of the files that these name and of this environment
are searched for in all texts, also in base64 and as URLs quote them, and left out. The archive has
the addresses and names of nodes, pods and peers.

Without --config the settings are those of the running agent, and of ` + defaultConfigFile + `
if that is there. Run it as the user who may use the agent's and VPP's sockets, such as root.

Exit status: 0 all is in it, 1 some files are missing, or the archive could not be written;
standard error names them.`,
		Example: `  vpp-route-agent support
  vpp-route-agent support -o /tmp/edge-7.tar.gz
  ssh edge-7 vpp-route-agent support -o - > edge-7.tar.gz`,
		RunE: s.run,
	}
	c.Flags().StringVarP(&s.file, "output", "o", "", "file to write; - for standard output; "+
		"default: vpp-route-agent-support-NODE-TIME.tar.gz in this directory")
	c.Flags().DurationVar(&s.patience, "timeout", 10*time.Second, "how long to wait for each file")
	socketFlag(c, &s.socket)
	addSettings(c.Flags(), func(setting) bool { return false })
	return c
}

func (s *supportCall) run(cmd *cobra.Command, _ []string) error {
	switch {
	case s.socket == "":
		return errNoSocket
	case s.patience <= 0:
		return usageError{errors.New("--timeout must be longer than 0")}
	}
	s.agent = adminclient.New(s.socket)
	if err := s.readSettings(cmd); err != nil {
		return err
	}
	made, node := time.Now().UTC().Truncate(time.Second), s.setting("--node-name")
	if node == "" {
		node = s.cfg.nodeName
	}
	name := fmt.Sprintf("vpp-route-agent-support-%s-%s", node, made.Format("20060102T150405Z"))
	secrets, unread := s.secrets(os.Environ())
	a := support.Archive{
		Name: name, Made: made, Secrets: secrets, Patience: s.patience, PartSize: maxPart,
		Scratch: []string{os.TempDir(), s.setting("--state-dir")},
		Intro: fmt.Sprintf(`Node %s, %s.

Made by vpp-route-agent support, version %s. Secrets that it could find out are replaced by
%s. NAME.error.txt says why NAME is missing or not whole.
`, node, made.Format(time.RFC3339), version, support.Redacted),
	}
	if len(unread) > 0 {
		a.Intro += "\nThese may have secrets and could not be read, so nothing was searched for " +
			"them:\n" + strings.Join(unread, "\n") + "\n"
	}
	if s.file == "" {
		s.file = name + ".tar.gz"
	}
	results, err := s.write(cmd, a)
	if err != nil {
		return err
	}
	failed := sayMissing(cmd.ErrOrStderr(), results)
	if s.file != "-" {
		fmt.Fprintln(cmd.OutOrStdout(), "wrote", s.file)
	}
	if failed {
		return errSilent
	}
	return nil
}

// sayMissing names the parts that should be there and are not, those for one reason together. It
// reports whether there are any.
func sayMissing(w io.Writer, results []support.Result) bool {
	var reasons []string
	names := map[string][]string{}
	for _, r := range results {
		if !r.Failed() {
			continue
		}
		why := r.Err.Error()
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		names[why] = append(names[why], r.Name)
	}
	for _, why := range reasons {
		fmt.Fprintf(w, "missing or not whole: %s: %s\n", strings.Join(names[why], ", "), why)
	}
	return len(reasons) > 0
}

// write has the archive in its file as a whole or not at all.
func (s *supportCall) write(cmd *cobra.Command, a support.Archive) ([]support.Result, error) {
	if s.file == "-" {
		return a.Write(cmd.Context(), cmd.OutOrStdout(), s.parts())
	}
	if info, err := os.Lstat(s.file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is there and is no regular file: it is not replaced", s.file)
	}
	// Its mode is 0600, and it is no link that somebody else has put there.
	f, err := os.CreateTemp(filepath.Dir(s.file), filepath.Base(s.file)+".*.partial")
	if err != nil {
		return nil, err
	}
	results, err := a.Write(cmd.Context(), f, s.parts())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return nil, err
	}
	return results, nil
}

// readSettings finds out where everything is. Settings that cannot be read are a part that fails.
func (s *supportCall) readSettings(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), settingsPatience)
	defer cancel()
	if s.agent.Get(ctx, "/v1/configuration", nil, &s.running) != nil {
		s.running = nil // the part of that name says why
	}
	_, named := os.LookupEnv(ownEnvPrefix + "CONFIG")
	if _, err := os.Stat(defaultConfigFile); err == nil && !named &&
		!cmd.Flags().Changed("config") {
		_ = cmd.Flags().Set("config", defaultConfigFile) // a string takes any
	}
	s.cfg, s.cfgError = settingsOf(cmd)
	switch {
	case errors.Is(s.cfgError, errInterrupted):
		return s.cfgError
	case s.cfgError != nil:
		// Defaults cannot be wrong, except for a host without a usable name.
		s.cfg, _ = loadConfig(pflag.NewFlagSet("", pflag.ContinueOnError),
			func(string) (string, bool) { return "", false })
	}
	return nil
}

// setting is that of the running agent, else the one by which it would run.
func (s *supportCall) setting(name string) string {
	if s.running != nil {
		return s.running[name]
	}
	return s.cfg.texts[name]
}

// parts are the files of the archive.
func (s *supportCall) parts() []support.Part {
	parts := []support.Part{
		{Name: "version.json", About: "version of this program and of the host's system",
			Collect: writesJSON(func() (any, error) { return thisHost(), nil })},
		{Name: "settings-of-this-call.json", About: "settings by the file and this environment",
			Collect: writesJSON(func() (any, error) {
				return shownSettings(s.cfg.texts), s.cfgError
			})},
	}
	parts = append(parts, s.agentParts()...)
	parts = append(parts, s.dataplaneParts()...)
	parts = append(parts, s.recorderParts()...)
	return append(parts,
		support.Part{Name: "log.txt", About: "the last lines of the unit's journal",
			Collect: readLog},
		support.Part{Name: "state-directory.txt", About: "what lies in the state directory: " +
			"journals and copies", Collect: s.listState},
		support.Part{Name: "bgp-crashes.json", About: "messages of peers on which GoBGP panicked",
			Collect: s.copyState("bgp-crashes.json")})
}

// recorderParts are the newest segments, which replay can begin with, and what was slow.
func (s *supportCall) recorderParts() []support.Part {
	dir := recorderDir(s.setting("--state-dir"))
	parts := []support.Part{{Name: "recorder/trace.json",
		About: "the slowest changes of the last hour",
		Collect: writesJSON(func() (any, error) {
			all, problems, err := recorder.Trace(dir, slowest, time.Now().Add(-time.Hour))
			if errors.Is(err, fs.ErrNotExist) {
				return nil, support.Absent("nothing was recorded")
			}
			return all, errors.Join(append(problems, err)...)
		})}}
	newest := func(pattern, about string) {
		segments, _ := filepath.Glob(filepath.Join(dir, pattern)) // it is good
		for _, path := range segments[max(0, len(segments)-keptSegments):] {
			name, _ := filepath.Rel(filepath.Dir(dir), path) // it is below
			parts = append(parts, support.Part{Name: name, Binary: true, About: about,
				Collect: s.copyState(name)})
		}
	}
	newest("*.rec", "what was recorded, for history, trace, dump and replay: it belongs in the "+
		"folder recorder of a --state-dir")
	newest("updates/*.mrt", "what BGP peers have sent, for bgpdump and gobgp")
	return parts
}

// agentParts are what the agent answers.
func (s *supportCall) agentParts() []support.Part {
	var parts []support.Part
	for _, p := range []struct{ name, path, about string }{
		{"status.json", "/v1/status", "status: also peers, guard and drain"},
		{"routes.json", "/v1/routes", "routes"},
		{"tunnels.json", "/v1/tunnels", "tunnels"},
		{"plan.json", "/v1/plan", "plan: sessions, filters, announcements, by which data"},
		{"external.json", "/v1/external", "items of external configuration"},
		{"external-history.json", "/v1/external/history", "and its changes"},
		{"log.txt", "/v1/log", "the last lines of its log, 1 MiB at most, since it started"},
		{"log-level.json", "/v1/log-level", "log level"},
		{"settings.json", "/v1/configuration", "settings in force"},
		{"metrics.txt", "/metrics", "metrics"},
		{"healthz.txt", "/healthz", "whether the agent's loop turns"},
		{"readyz.txt", "/readyz", "conditions"},
		{"goroutines.txt", "/debug/pprof/goroutine?debug=2", "what each goroutine does"},
		{"heap.pprof", "/debug/pprof/heap", "what has the memory, for go tool pprof"},
	} {
		parts = append(parts, support.Part{Name: "agent/" + p.name, About: p.about,
			Binary:  strings.HasSuffix(p.name, ".pprof"),
			Collect: func(ctx context.Context, w io.Writer) error { return s.ask(ctx, p.path, w) }})
	}
	return parts
}

// ask copies an answer of the agent.
func (s *supportCall) ask(ctx context.Context, path string, w io.Writer) error {
	path, query, err := splitQuery(path)
	if err != nil {
		return err
	}
	var answer adminclient.StatusError
	err = s.agent.Copy(ctx, path, query, w)
	switch {
	case !errors.As(err, &answer):
		return err
	case path == "/readyz" || path == "/healthz": // what it answers says what is wrong
		return nil
	case strings.HasPrefix(path, "/v1/external") && s.setting("--external") == "":
		return support.Absent("the agent has no external configuration: --external")
	case path == "/v1/plan" && s.setting("--learn") == "ipam":
		return support.Absent("without BGP there is no plan: --learn ipam")
	}
	return err
}

// copyState has a file of the state directory in the archive.
func (s *supportCall) copyState(name string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		f, err := os.Open(filepath.Join(s.setting("--state-dir"), name))
		if errors.Is(err, fs.ErrNotExist) {
			return support.Absent("there is no such file: none did")
		}
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}
}

// listState lists names, sizes and times.
func (s *supportCall) listState(ctx context.Context, w io.Writer) error {
	dir := s.setting("--state-dir")
	fmt.Fprintf(w, "%s\n", dir)
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // replaced just now
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		_, err = fmt.Fprintf(w, "%s %12d %s %s\n", info.Mode(), info.Size(),
			info.ModTime().UTC().Format(time.RFC3339), name)
		return err
	})
}
