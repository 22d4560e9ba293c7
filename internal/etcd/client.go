// Package etcd lists and watches ranges of keys of etcd v3 for whoever knows what they mean (Data),
// and keeps a process's own keys there under a lease (Exchange). It owns the connection, the
// retries, and what must hold across compactions, lost watches and restored backups. It decodes
// nothing.
package etcd

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// firstRetry and LastRetry bound the back-off. Half of it is random, since a thousand nodes
	// lose their etcd at the same moment.
	firstRetry = 200 * time.Millisecond
	LastRetry  = 15 * time.Second
)

// Client connects to etcd. It is immutable.
type Client struct {
	cfg     Config
	etcd    clientv3.Config
	purpose string
}

// NewClient checks cfg and does not connect. An error is one sentence about cfg. purpose completes
// the sentence "etcd does not allow user X".
func NewClient(cfg Config, purpose string) (*Client, error) {
	c, err := cfg.client()
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, etcd: c, purpose: purpose}, nil
}

// Run connects, calls use, and connects again after its error, until ctx ends. It waits between
// attempts, in the end for up to longest, and calls failed with each error.
func (c *Client) Run(ctx context.Context, longest time.Duration,
	use func(context.Context, *clientv3.Client) error, failed func(error)) {
	wait := firstRetry
	for {
		began := time.Now()
		err := c.Once(ctx, use)
		if ctx.Err() != nil {
			return
		}
		failed(c.cfg.diagnose(ctx, err))
		if time.Since(began) > LastRetry {
			wait = firstRetry
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, longest)
	}
}

// Once connects and calls use. Each call has a new client, without dead connections and with
// renewed certificates.
func (c *Client) Once(ctx context.Context,
	use func(context.Context, *clientv3.Client) error) error {
	cfg := c.etcd
	cfg.Context = ctx
	client, err := clientv3.New(cfg) // logs in, if there is a user
	if err != nil {
		return err
	}
	defer client.Close()
	return use(ctx, client)
}
