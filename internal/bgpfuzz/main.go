// Command bgpfuzz sends a reflector of ours what no honest speaker sends, on real TCP sessions and
// in every state of them, and sees that the honest speakers behind it (BIRD, FRR, GoBGP) notice
// nothing: their sessions stay, they end with the right routes, and the reflector answers and stays
// small.
//
// It owns the generator of scenarios, their text form, and the topology in network namespaces. It
// decides nothing about routes: the agents are the real binary, in processes of their own.
// docs/fuzzing.md says how to use it and what a finding looks like.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

func main() { testcluster.Main("bgpfuzz", run, nil) }

// settings are what the command line says.
type settings struct {
	programs
	out    io.Writer
	log    *slog.Logger
	corpus string
	found  string
	seed   uint64
	length budget
	shrink bool
}

// budget is for how long, or for how many scenarios; the zero value is none.
type budget struct {
	time  time.Duration
	count int
}

func (b *budget) String() string {
	if b.count > 0 {
		return fmt.Sprintf("%dx", b.count)
	}
	return b.time.String()
}

// spent says whether so many scenarios, or so much time, are enough.
func (b *budget) spent(count int, took time.Duration) bool {
	if b.count > 0 {
		return count >= b.count
	}
	return took >= b.time
}

func (b *budget) Set(text string) (err error) {
	*b = budget{}
	if count, ok := strings.CutSuffix(text, "x"); ok {
		b.count, err = strconv.Atoi(count)
		return err
	}
	b.time, err = time.ParseDuration(text)
	return err
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bgpfuzz", flag.ContinueOnError)
	quiet := &slog.HandlerOptions{Level: slog.LevelWarn}
	s := settings{out: out, log: slog.New(slog.NewTextHandler(os.Stderr, quiet))}
	build := flags.String("build", "build",
		"`folder` with the agent and the gobgp command, where Debian's packages are unpacked")
	flags.StringVar(&s.corpus, "corpus", "internal/bgpfuzz/testdata/corpus",
		"`folder` with scenarios that are played first")
	flags.StringVar(&s.found, "found", "out/bgpfuzz", "`folder` for the scenarios of a finding")
	flags.Uint64Var(&s.seed, "seed", 0, "of the scenarios; 0: by the clock")
	s.length.time = 30 * time.Second
	flags.Var(&s.length, "fuzztime",
		"after the corpus: a time, or a number of scenarios such as 1000x; 0: the corpus only")
	flags.BoolVar(&s.shrink, "shrink", false,
		"after a finding, find out which of the scenarios it was, and which of its steps")
	show := flags.Int("show", -1, "print scenario number `n` of the seed and end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	if *show >= 0 {
		_, err := fmt.Fprint(out, generate(s.seed, *show))
		return err
	}
	if err := netlab.Available(); err != nil {
		return err
	}
	var err error
	if s.programs, err = findPrograms(ctx, *build); err != nil {
		return err
	}
	kept, err := readCorpus(flags.Args(), s.corpus)
	if err != nil {
		return err
	}
	return s.fuzz(ctx, kept)
}

// readCorpus reads the files that are named, or else all of a folder.
func readCorpus(files []string, folder string) (all []scenario, err error) {
	if len(files) == 0 {
		if files, err = filepath.Glob(filepath.Join(folder, "*.txt")); err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no scenario in %s", folder)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := parse(strings.TrimSuffix(filepath.Base(file), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// fuzz plays the corpus, then scenarios of the seed, and reports the first finding.
func (s settings) fuzz(ctx context.Context, kept []scenario) error {
	fmt.Fprintf(s.out, "bgpfuzz: %d scenarios of the corpus, then seed %d for %s\n",
		len(kept), s.seed, &s.length)
	r := &round{settings: s}
	var start time.Time
	err := r.play(ctx, list(kept), func(i int) (scenario, bool) {
		if i == 0 {
			start = time.Now() // the corpus takes as long as it takes
		}
		return generate(s.seed, i), !s.length.spent(i, time.Since(start))
	})
	fmt.Fprintln(s.out, "bgpfuzz:", &r.measured)
	for _, text := range r.survived {
		fmt.Fprintln(s.out, "bgpfuzz: survived:", text)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err == nil || len(r.suspects) == 0 {
		return err
	}
	return errors.Join(err, s.keep(ctx, r.suspects))
}

// keep writes down what a finding may be due to: in the corpus if it is one scenario for sure,
// which is not there yet.
func (s settings) keep(ctx context.Context, suspects []scenario) error {
	folder := s.found
	if s.shrink {
		if suspects = s.shrunk(ctx, suspects); len(suspects) == 1 && suspects[0].generated {
			folder = s.corpus
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	err := fmt.Errorf("it was one of %d scenarios, or several", len(suspects))
	for _, suspect := range suspects {
		suspect.about = append(suspect.about, suspect.name)
		text := suspect.String()
		file := filepath.Join(folder,
			fmt.Sprintf("found-%08x.txt", crc32.ChecksumIEEE([]byte(text))))
		err = fmt.Errorf("%w\n%s", err, file)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return err
}
