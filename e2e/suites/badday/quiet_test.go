package badday_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/badday"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
)

// quiet waits until everything is right, and says what is not when that takes too long.
func (d *day) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, eventually)
	defer cancel()
	for {
		wrong, err := d.wrong(ctx)
		if err != nil {
			return err
		}
		if len(wrong) == 0 {
			d.mu.Lock()
			d.history.Quiet = append(d.history.Quiet, time.Now())
			d.mu.Unlock()
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("it does not get quiet: %w; %d things are wrong:\n    %s", err, len(wrong), strings.Join(wrong[:min(len(wrong), 20)], "\n    "))
		}
	}
}

// wrong lists what is not as it must be when it is quiet.
func (d *day) wrong(ctx context.Context) (wrong []string, err error) {
	pods, err := d.API.List(ctx, "")
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	for i := range pods {
		wrong = append(wrong, wrongOf(&pods[i], d.ledger.Holder(string(pods[i].UID)), d.keys)...)
	}
	d.mu.Unlock()
	if len(d.keys) > 0 || len(wrong) > 0 {
		return wrong, nil
	}
	for _, node := range d.Info().Nodes {
		page, err := d.Metrics(ctx, node.Name)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(page, "\nvpccni_annotations_owned 0\n") {
			wrong = append(wrong, "the daemon of "+node.Name+" still answers for annotations")
		}
	}
	return wrong, nil
}

// wrongOf lists what is wrong with a pod's keys: one that runs has the present keys with its sandbox's address and no others, one
// that does not has none with a value.
func wrongOf(pod *corev1.Pod, address string, keys []string) (wrong []string) {
	for _, key := range []string{awsKey, otherKey} {
		value, present := pod.Annotations[key]
		state := "runs with " + address
		want := "no such key"
		ok := !present
		switch {
		case address == "":
			state, want, ok = "has no sandbox", "no value", value == ""
		case slices.Contains(keys, key):
			want, ok = address, value == address
		}
		if !ok {
			wrong = append(wrong, fmt.Sprintf("pod %s (%s, node %s, phase %s, deleted %t) %s: %s is %q (there: %t), want %s",
				pod.Name, pod.UID, pod.Spec.NodeName, pod.Status.Phase, pod.DeletionTimestamp != nil, state, key, value, present, want))
		}
	}
	return wrong
}

// mostCalls is how many requests the daemons may make, to the fewest possible.
const mostCalls = 1.2

// shown is how many wrong moments are shown one by one.
const shown = 10

// judge prints the day's figures and says what was not as it must be.
func (d *day) judge() error {
	file, err := d.Audit()
	if err != nil {
		return err
	}
	requests, err := badday.Read(file, d.Info().DaemonUser)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, box := range d.boxes {
		d.history.Sandboxes = append(d.history.Sandboxes, *box)
	}
	least := d.history.Minimum()
	ratio := float64(requests.Total()) / float64(least.Total())
	d.say("seed %d: %d pods, %d sandboxes, %d times quiet", d.seed, d.made, len(d.boxes), len(d.history.Quiet))
	d.say("API calls %d (%s), minimum %d (sets %d, clears %d, removals %d, refusals heard %d, lists %d): %.2f times; besides %d other requests",
		requests.Total(), requests, least.Total(), least.Sets, least.Clears, least.Removals, least.Refused, least.Lists, ratio, requests.Other)
	errs := d.judgeViews(requests)
	if ratio > mostCalls {
		errs = append(errs, fmt.Errorf("%d API calls are %.2f times the minimum of %d, want at most %.1f", requests.Total(), ratio, least.Total(), mostCalls))
	}
	return errors.Join(errs...)
}

// judgeViews prints both counts of the ledger, by reader.
func (d *day) judgeViews(requests badday.Requests) (errs []error) {
	type count struct{ byKey, byStatus, late int }
	counts := map[string]*count{policygate.Calico: {}, policygate.Strict: {}, policygate.StatusOnly: {}}
	var byKey []string
	var latest time.Duration
	for _, m := range d.ledger.Moments(time.Now(), requests.Committed) {
		c := counts[m.Reader]
		switch {
		case m.Late:
			c.late++
			latest = max(latest, m.For)
		case m.ByStatus():
			c.byStatus++
		default:
			c.byKey++
			byKey = append(byKey, fmt.Sprintf("%s for %s: %s takes %s for %s's by %s, %s holds it",
				m.From.Format("15:04:05.000"), m.For.Round(time.Microsecond), m.Reader, m.Address, m.Claimed, m.Source, m.Holder))
		}
	}
	d.say("moments in which a reader gave an address to one pod while another's sandbox held it:")
	for _, reader := range []string{policygate.Calico, policygate.Strict, policygate.StatusOnly} {
		c, line := counts[reader], ""
		if delays := d.ledger.Delays(reader); len(delays) > 0 {
			line = fmt.Sprintf("; knew a pod's address p50 %s, p99 %s after its ADD",
				delays[len(delays)/2].Round(time.Millisecond), delays[len(delays)*99/100].Round(time.Millisecond))
		}
		d.say("  %-7s by our keys %d, by a stale status.podIP %d, only late %d%s", reader, c.byKey, c.byStatus, c.late, line)
	}
	d.say("  longest time late: %s", latest.Round(time.Microsecond))
	if counts[policygate.StatusOnly].byStatus == 0 {
		errs = append(errs, errors.New("no address was used again while a stale status named it: the day has shown nothing"))
	}
	if len(byKey) > 0 {
		errs = append(errs, fmt.Errorf("%d moments were wrong by our keys:\n    %s", len(byKey), strings.Join(byKey[:min(len(byKey), shown)], "\n    ")))
	}
	if bad := d.ledger.Unreadable(); len(bad) > 0 {
		errs = append(errs, fmt.Errorf("%d values are no bare address: %s", len(bad), strings.Join(bad[:min(len(bad), shown)], ", ")))
	}
	return errs
}
