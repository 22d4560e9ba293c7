package kubetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// kept is a state in a file.
type kept struct {
	Version int                                   `json:"version"`
	Objects map[string]map[string]json.RawMessage `json:"objects"`
}

// Keep has the server begin with what is in a file, and write there what it has before it answers a
// write. Watches from before are Gone.
func (s *Server) Keep(file string) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = file
	if text == nil {
		return nil
	}
	var was kept
	if err := json.Unmarshal(text, &was); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	s.state = state{was.Version, was.Objects}
	s.oldest, s.events = was.Version, nil
	return nil
}

// keep needs s.mu.
func (s *Server) keep() error {
	if s.file == "" {
		return nil
	}
	text, err := json.Marshal(kept{s.state.version, s.state.objects})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.file+".new", s.file)
}
