package main

import (
	"context"
	"fmt"
)

// troubleOldEtcd makes the faults in which versions of etcd differ, one after the other.
func troubleOldEtcd(ctx context.Context, t *trial) error {
	st, err := t.Data.Client().Status(ctx, t.etcd.members[0].client())
	if err != nil {
		return err
	}
	t.note("etcd %s", st.Version)
	for i, f := range []func(context.Context, *trial) error{
		killLeader, compactMeanwhile, loseQuorum,
	} {
		if err := f(ctx, t); err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
		if err := t.converged(ctx, recovery); err != nil {
			return err
		}
	}
	return nil
}
