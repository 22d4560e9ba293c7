package main

import (
	"context"
	"time"
)

// pause lets time pass in which a fault lasts.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
