package main

import (
	"context"
	"fmt"
	"time"
)

// await asks until holds has no objection; its error is the last objection.
func await(ctx context.Context, patience time.Duration, what string, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not after %s: %w", what, patience, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pause lets time pass in which a fault lasts.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
