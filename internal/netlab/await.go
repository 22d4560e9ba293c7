package netlab

import (
	"context"
	"fmt"
	"time"
)

// Await asks every 20 ms until holds has no objection. Its error is the last objection.
func Await(
	ctx context.Context, patience time.Duration, what string, holds func(context.Context) error,
) error {
	return AwaitEvery(ctx, patience, 20*time.Millisecond, what, holds)
}

// AwaitEvery is Await with another interval, which bounds what a time taken by it can resolve.
func AwaitEvery(
	ctx context.Context, patience, interval time.Duration, what string,
	holds func(context.Context) error,
) error {
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
		case <-time.After(interval):
		}
	}
}

// WhenSlow calls say unless done is called within 2 s. Nothing is said after done has returned.
func WhenSlow(say func()) (done func()) {
	said := make(chan struct{})
	t := time.AfterFunc(2*time.Second, func() {
		defer close(said)
		say()
	})
	return func() {
		if !t.Stop() {
			<-said
		}
	}
}
