package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// writeDrainNote notes d in the file at path, so that the next process goes on with it. Without a
// drain it removes the file.
func writeDrainNote(path string, d DrainStatus) error {
	if path == "" {
		return nil
	}
	if d.Phase == NotDraining {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readDrainNote returns the drain that an earlier process left, if any. A file that cannot be read
// counts as a drain that stays: a node that returns to service by mistake is worse.
func readDrainNote(path string) (drain, error) {
	if path == "" {
		return drain{}, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return drain{}, nil
	}
	var note DrainStatus
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err == nil && note.Phase != Draining && note.Phase != Withdrawn {
		err = fmt.Errorf("unknown phase %q", note.Phase)
	}
	if err != nil {
		now := time.Now()
		note = DrainStatus{Since: now, Until: now, Stay: true}
		return drain{state: drainWaiting, request: note}, fmt.Errorf("%s: %w", path, err)
	}
	// The clock may have been set back since.
	if latest := time.Now().Add(note.Until.Sub(note.Since)); latest.Before(note.Until) {
		note.Until = latest
	}
	return drain{state: drainWaiting, request: note}, nil // this process has withdrawn nothing yet
}
