package pingready

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
)

// Options of a run.
type Options struct {
	Pods     int           // started at once in each round
	Rounds   []Knob        // what to do, in order
	Key      string        // the annotation's
	Cooldown time.Duration // of the daemons: how long a released address is not used again
	Seed     uint64        // names the pods, so that their kubelets' delays differ between seeds
	Node     string        // the one node that all pods of a round start on; "": they are spread over all
	Plans    []Plan        // in the place of Rounds and Node, where rounds differ in more than the knob
	// Around, where set, does a round by calling measure once, after the daemons' restart: for who measures beside it.
	Around func(plan Plan, measure func() error) error
	Out    io.Writer // progress
}

// Plan is one round.
type Plan struct {
	Knob Knob
	Node string        // as in Options
	Wait time.Duration // ANNOTATE_POD_IP_WAIT
}

// plans are the rounds to make.
func (o Options) plans() (plans []Plan) {
	if o.Plans != nil {
		return o.Plans
	}
	for _, knob := range o.Rounds {
		plans = append(plans, Plan{Knob: knob, Node: o.Node})
	}
	return plans
}

// Target is the cluster to measure.
type Target interface {
	cluster.Cluster
	cluster.Follower
}

// Alternate gives rounds that alternate between off and on, the given number of each.
func Alternate(each int) (rounds []Knob) {
	for range each {
		rounds = append(rounds, Off, On)
	}
	return rounds
}

// interval between two pings of one train.
const interval = 10 * time.Millisecond

// CapacityError says that the nodes cannot hold the pods.
type CapacityError struct {
	Pods, Capacity int // capacity for new pods: the responders' places are taken off
}

func (e *CapacityError) Error() string {
	return fmt.Sprintf("start %d pods at once: the nodes can hold %d beside the responders", e.Pods, e.Capacity)
}

// Capacity is how many pods a round may have: rounds spread their pods evenly, so the smallest node decides. One address
// of each node is its responder's.
func Capacity(info cluster.Info) int {
	return leastCapacity(info) * len(info.Nodes)
}

// leastCapacity is how many pods a round may have on each node.
func leastCapacity(info cluster.Info) int {
	least := info.Nodes[0].Capacity
	for _, node := range info.Nodes {
		least = min(least, node.Capacity)
	}
	return least - 1
}

// run is a run under way.
type run struct {
	options    Options
	target     Target
	info       cluster.Info
	client     *podapi.Client
	recorder   *recorder
	responders []*responder           // one for each node
	cooling    map[string][]time.Time // by node: when addresses were released
	round      int
}

// responder is a pod that ran before the rounds, and the socket from which it pings.
type responder struct {
	pod    cluster.Pod
	uid    string
	record record
	prober *ping.Prober
}

// Run makes the rounds and gives their report, without its environment.
func Run(ctx context.Context, target Target, options Options) (*Report, error) {
	info := target.Info()
	if len(info.Nodes) < 2 {
		return nil, errors.New("measure: it takes two nodes")
	}
	capacity := Capacity(info)
	if options.Node != "" || slices.ContainsFunc(options.Plans, func(p Plan) bool { return p.Node != "" }) {
		capacity = leastCapacity(info)
	}
	if options.Pods > capacity {
		return nil, &CapacityError{Pods: options.Pods, Capacity: capacity}
	}
	client, err := podapi.New(target.Config())
	if err != nil {
		return nil, err
	}
	r := &run{
		options: options, target: target, info: info, client: client,
		recorder: newRecorder(options.Key), cooling: map[string][]time.Time{},
	}
	stop := target.Follow(r.recorder.take)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- client.Watch(ctx, "", r.recorder, nil) }()
	report, err := r.all(ctx)
	err = errors.Join(err, r.removeResponders(ctx))
	cancel()
	return report, errors.Join(err, <-watched)
}

func (r *run) all(ctx context.Context) (*Report, error) {
	if err := r.startResponders(ctx); err != nil {
		return nil, err
	}
	report := &Report{}
	plans := r.options.plans()
	for _, plan := range plans {
		knob := plan.Knob
		r.options.Node = plan.Node
		began := time.Now()
		r.printf("  ...  round %d of %d, annotation %s: the daemons restart, then %d pods start\n", r.round+1, len(plans), knob, r.options.Pods)
		if err := r.turn(ctx, plan); err != nil {
			return nil, err
		}
		if err := errors.Join(pause(ctx, settle), r.awaitAddresses(ctx)); err != nil {
			return nil, err
		}
		prepared := time.Now()
		var round Round
		err := r.around(plan, func() (err error) {
			round, err = r.measure(ctx, knob)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("round %d (annotation %s): %w", r.round, knob, err)
		}
		report.Rounds = append(report.Rounds, round)
		lost := quantiles(counts(round.Pods, Pod.FailedPings))
		r.printf("  ok   round %d, annotation %-3s %3d pods %15s %6.1f s, of which %.1f s waiting; failed pings per pod, in and out together: p50 %.0f, max %.0f\n",
			r.round, knob, len(round.Pods), "", time.Since(began).Seconds(), prepared.Sub(began).Seconds(), *lost.P50, *lost.Max)
		for _, trouble := range round.Troubles {
			r.printf("       got over: %s\n", trouble)
		}
	}
	report.Summarize()
	return report, nil
}

// settle is the time between a restart of the daemons and a round. The kernel takes most of a second, under the lock that
// every ADD needs, to take down the namespaces of the round before, and a daemon visits its pods when it starts: neither
// is what a round is to measure.
const settle = 2 * time.Second

func (r *run) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(r.options.Out, format, args...) // a screen that went away must not stop a run
}

// turn brings the knob into its position as an operator does: all daemons are restarted with the changed setting. That
// happens before every round, also where the knob stays, so that rounds differ in nothing else.
func (r *run) turn(ctx context.Context, plan Plan) error {
	knob := plan.Knob
	settings := map[string]string{"ANNOTATE_POD_IP": "false"}
	if knob == On {
		settings["ANNOTATE_POD_IP"] = "true"
	}
	if r.options.Plans != nil {
		settings["ANNOTATE_POD_IP_WAIT"] = plan.Wait.String()
	}
	err := r.target.Reconfigure(ctx, settings)
	if err != nil {
		return fmt.Errorf("turn the annotation %s: %w", knob, err)
	}
	return nil
}

func (r *run) around(plan Plan, measure func() error) error {
	if r.options.Around == nil {
		return measure()
	}
	return r.options.Around(plan, measure)
}

// startResponders starts one pod on each node and waits until all are known to the policy agents.
func (r *run) startResponders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	var uids []string
	for _, node := range r.info.Nodes {
		pod, err := r.create(ctx, "responder-"+node.Name, node.Name)
		if err != nil {
			return err
		}
		r.responders = append(r.responders, pod)
		uids = append(uids, pod.uid)
	}
	missing, err := r.recorder.wait(ctx, uids, func(p record) bool { return !p.status.IsZero() && !p.programmed.IsZero() })
	if err != nil {
		return fmt.Errorf("start responders: %w; %s", err, r.describe(missing))
	}
	for _, pod := range r.responders {
		pod.record = r.recorder.get(pod.uid)
		conn, err := r.target.Ping(pod.pod)
		if err != nil {
			return err
		}
		pod.prober = ping.NewProber(conn)
	}
	return nil
}

// removeResponders leaves the cluster as it was.
func (r *run) removeResponders(ctx context.Context) error {
	var errs []error
	var list []*subject
	for _, pod := range r.responders {
		list = append(list, &subject{pod: pod.pod, uid: pod.uid, prober: pod.prober})
		errs = append(errs, list[len(list)-1].close())
	}
	if ctx.Err() == nil { // else the cluster is about to be stopped
		ctx, cancel := context.WithTimeout(ctx, podTimeout)
		defer cancel()
		errs = append(errs, r.remove(ctx, list))
	}
	return errors.Join(errs...)
}

// create makes a pod that is bound to a node.
func (r *run) create(ctx context.Context, name, node string) (*responder, error) {
	made, err := r.client.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "pinger", Image: "none"}},
		},
	})
	if err != nil {
		return nil, err
	}
	at := types.NamespacedName{Namespace: made.Namespace, Name: made.Name}
	return &responder{pod: cluster.Pod{NamespacedName: at, Node: node}, uid: string(made.UID)}, nil
}

// podTimeout is how long pods may take to start, or to end: an ADD may wait for a second ENI, which takes EC2 seconds.
const podTimeout = 90 * time.Second

// describe says what is known of pods that did not get as far as they should.
func (r *run) describe(uids []string) string {
	const enough = 3 // of the same kind, mostly
	var out strings.Builder
	fmt.Fprintf(&out, "%d pods are behind", len(uids))
	for _, uid := range uids[:min(enough, len(uids))] {
		p := r.recorder.get(uid)
		fmt.Fprintf(&out, "; %s: ADD exec'd %t, ADD done %t, programmed %t, status %t %s",
			uid, !p.addExec.IsZero(), !p.addDone.IsZero(), !p.programmed.IsZero(), !p.status.IsZero(), strings.Join(p.troubles, "; "))
	}
	fmt.Fprintf(&out, "; logs are in %s", r.info.Logs)
	return out.String()
}

// awaitAddresses waits until every node has an address for each of its pods that is not cooling down: with fewer, ADDs
// would wait for the cooldown, and a round would measure that.
func (r *run) awaitAddresses(ctx context.Context) error {
	need := (r.options.Pods + len(r.info.Nodes) - 1) / len(r.info.Nodes)
	if r.options.Node != "" {
		need = r.options.Pods
	}
	var until time.Time
	for _, node := range r.info.Nodes {
		released := slices.DeleteFunc(r.cooling[node.Name], func(at time.Time) bool { return time.Since(at) >= r.options.Cooldown })
		r.cooling[node.Name] = released // ascending
		short := need - (node.Capacity - 1 - len(released))
		for i := range max(0, short) {
			if i < len(released) && released[i].Add(r.options.Cooldown).After(until) {
				until = released[i].Add(r.options.Cooldown)
			}
		}
	}
	wait := time.Until(until)
	if wait <= 0 {
		return nil
	}
	r.printf("  ...  %-42s %6.1f s\n", "addresses cool down", wait.Seconds())
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
