package ipamd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// abortTimeout bounds giving back an address whose plugin went away: one state save. If it fails the loop still finds the
// address by evidence.
const abortTimeout = 10 * time.Second

// allocator answers the plugin from the loop: api.Allocator and api.Auditor.
type allocator struct {
	loop    *reconcile.Loop
	answers *answers
	metrics *introspect.Metrics
	log     *slog.Logger

	vethPrefix string
	podMTU     int           // bytes
	wait       time.Duration // for the annotation; 0: not at all
}

// Assign implements api.Allocator.
func (a *allocator) Assign(ctx context.Context, request api.AssignRequest) (api.PodNetwork, error) {
	start := time.Now()
	first := a.wait > 0 && a.answers.expect(request.ContainerID)
	lease, err := a.loop.Assign(ctx, keyOf(request.Attachment), pool.Pod(request.Pod), request.NetNS)
	var none *reconcile.NoAddressError
	a.metrics.Added(time.Since(start), errors.As(err, &none))
	if err != nil {
		a.answers.forget(request.ContainerID)
		return api.PodNetwork{}, refusal(err)
	}
	if first && lease.Assignment.Since.Before(start) { // an earlier call's, whose answer has come: no other will
		a.answers.forget(request.ContainerID)
	}
	network := a.recipe(lease)
	network.Repeat = lease.Assignment.Done
	return network, nil
}

// Done implements api.Allocator. The wait for the annotation comes after the save and never makes it fail.
func (a *allocator) Done(ctx context.Context, request api.DoneRequest) error {
	if err := a.loop.Done(ctx, keyOf(request.Attachment)); err != nil {
		return refusal(err)
	}
	if a.wait > 0 {
		a.answers.wait(ctx, request.ContainerID, a.wait)
	}
	return nil
}

// Abort implements api.Allocator.
func (a *allocator) Abort(attachment api.Attachment) {
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	a.answers.forget(attachment.ContainerID)
	if err := a.loop.Abort(ctx, keyOf(attachment)); err != nil {
		a.log.Warn("unfinished assignment not given back yet", "sandbox", attachment.ContainerID, "err", err)
	}
}

// Release implements api.Allocator.
func (a *allocator) Release(ctx context.Context, request api.ReleaseRequest) error {
	return a.release(ctx, request, "del")
}

func (a *allocator) release(ctx context.Context, request api.ReleaseRequest, reason string) error {
	a.answers.forget(request.ContainerID)
	key, pod := keyOf(request.Attachment), pool.Pod(request.Pod)
	_, held, err := a.loop.Release(ctx, key)
	if err != nil {
		return refusal(err)
	}
	if held {
		a.metrics.Deleted(reason)
		return nil
	}
	return a.loop.Departed(ctx, key, pod, hostVeth(a.vethPrefix, key, pod)) // unknown: perhaps its record was lost
}

// Check implements api.Auditor.
func (a *allocator) Check(ctx context.Context, attachment api.Attachment) (api.PodNetwork, error) {
	lease, err := a.loop.Check(ctx, keyOf(attachment))
	if err != nil {
		return api.PodNetwork{}, refusal(err)
	}
	return a.recipe(lease), nil
}

// Status implements api.Auditor: the daemon can serve once it has read the cloud and put the kernel right, and while it can
// save what it gives out.
func (a *allocator) Status(ctx context.Context) error {
	select {
	case <-a.loop.Ready():
	default:
		return api.NewError(api.CodeNotAvailable, "daemon is not ready",
			"it has not read the node's ENIs and put the kernel right yet; its log and /v1/status say what is missing")
	}
	last, err := a.loop.LastErrors(ctx)
	if err != nil {
		return refusal(err)
	}
	if last.Save != "" {
		return api.NewError(api.CodeNotAvailable, "state cannot be saved", last.Save+"; "+stateAdvice)
	}
	return nil
}

// GC implements api.Auditor.
func (a *allocator) GC(ctx context.Context, request api.GCRequest) (api.GCReply, error) {
	valid := make([]pool.Key, 0, len(request.Valid))
	for _, attachment := range request.Valid {
		valid = append(valid, keyOf(attachment))
	}
	freed, err := a.loop.GC(ctx, request.Network, valid)
	if err != nil {
		return api.GCReply{}, refusal(err)
	}
	reply := api.GCReply{Freed: make([]api.Attachment, 0, len(freed))}
	for _, key := range freed {
		reply.Freed = append(reply.Freed, attachmentOf(key))
		a.metrics.Deleted("gc")
	}
	return reply, nil
}

// refusal gives the loop's errors the CNI's codes. What is none of the loop's own goes on as it is: the server knows
// deadlines and cancellations.
func refusal(err error) error {
	var none *reconcile.NoAddressError
	var save *reconcile.SaveError
	switch {
	case errors.As(err, &none):
		return api.NewError(api.CodeTryAgain, "no address for the pod yet", none.Reason)
	case errors.As(err, &save):
		return api.NewError(api.CodeTryAgain, "assignment could not be saved", save.Error()+"; "+stateAdvice)
	case errors.Is(err, reconcile.ErrUnknown):
		return api.NewError(api.CodeNotAssigned, "no address is assigned to this attachment", "")
	case errors.Is(err, reconcile.ErrSuperseded):
		return api.NewError(api.CodeTryAgain, "the pod has a newer sandbox", "the runtime has given this one up")
	case errors.Is(err, reconcile.ErrStopped):
		return api.NewError(api.CodeTryAgain, "daemon is not running", "it is starting or shutting down")
	}
	return err
}
