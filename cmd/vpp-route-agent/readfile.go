package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// The most that is read of a file, so that a wrong one (/dev/zero) is named instead of filling the
// memory. Resources are those of a whole cluster.
const (
	maxSettings  = 1 << 20
	maxResources = 256 << 20
)

// errInterrupted is the error of a command that a signal ended while it read a file.
var errInterrupted = errors.New("interrupted")

// unlessInterrupted returns what read returns, or errInterrupted when ctx ends before. Then read
// goes on until the process ends: nothing else ends a read of a pipe, or of a file server that
// does not answer.
func unlessInterrupted[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return *new(T), errInterrupted
	}
}

// readFileOr reads a file, or for - standard input.
func readFileOr(cmd *cobra.Command, file string) ([]byte, error) {
	switch file {
	case "":
		return nil, errors.New("give -f FILE, or -f - for standard input")
	case "-":
		return unlessInterrupted(cmd.Context(), func() ([]byte, error) {
			return readAtMost(cmd.InOrStdin(), "standard input", maxResources)
		})
	}
	return unlessInterrupted(cmd.Context(), func() ([]byte, error) {
		return readFile(file, maxResources)
	})
}

// readFile is os.ReadFile for a file of at most so many bytes.
func readFile(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f, file, most)
}

func readAtMost(r io.Reader, name string, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, most>>20)
	}
	return text, err
}

// settingsOf are the settings of a command, unless a signal ends it before.
func settingsOf(cmd *cobra.Command) (config, error) {
	return unlessInterrupted(cmd.Context(), func() (config, error) {
		return loadConfig(cmd.Flags(), os.LookupEnv)
	})
}
