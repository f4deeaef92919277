package ipamd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

const (
	// auditInterval is the pace of looking for deletions that found no daemon and for the network configuration, the same
	// as that of the loop's audit.
	auditInterval = 30 * time.Second
	// collectTimeout bounds the first collection, which plugins wait for: one state save each, a node's worth of them.
	collectTimeout = 10 * time.Second
)

// pending releases what plugins deleted while no daemon ran.
type pending struct {
	socket    string
	allocator *allocator
	around    Around
	every     time.Duration
	log       *slog.Logger
}

// collect releases every recorded deletion. A record that cannot be released stays for the next time.
func (p *pending) collect(ctx context.Context) {
	var records []api.PendingDel
	err := p.around.do("pending collect", func() (err error) { // it removes what it cannot read
		records, err = api.CollectPending(p.socket)
		return err
	})
	if err != nil {
		p.log.Warn("recorded deletions not all readable", "err", err)
	}
	for _, record := range records {
		if err := p.settle(ctx, record); err != nil {
			p.log.Warn("recorded deletion kept", "sandbox", record.ContainerID, "err", err)
			continue
		}
		p.log.Info("recorded deletion carried out", "sandbox", record.ContainerID, "namespace", record.Pod.Namespace, "pod", record.Pod.Name)
	}
}

// settle releases one recorded deletion's address and forgets the record. An attachment that was assigned again after the
// deletion is a new pod's: only the record goes.
func (p *pending) settle(ctx context.Context, record api.PendingDel) error {
	lease, err := p.allocator.loop.Check(ctx, keyOf(record.Attachment))
	switch {
	case errors.Is(err, reconcile.ErrUnknown), errors.Is(err, reconcile.ErrSuperseded): // the newer sandbox has another key
	case err != nil:
		return err
	case lease.Assignment.Since.After(record.At):
		return p.remove(record)
	}
	if err := p.allocator.release(ctx, record.ReleaseRequest, "pending"); err != nil {
		return err
	}
	return p.remove(record)
}

func (p *pending) remove(record api.PendingDel) error {
	return p.around.do("pending remove", func() error { return api.RemovePending(p.socket, record.Attachment) })
}

// run collects at the audit's pace until ctx ends: a plugin may have found no daemon a moment before the socket was there.
func (p *pending) run(ctx context.Context) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.collect(ctx)
		}
	}
}
