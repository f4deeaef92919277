package badday_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vpc-cni/vpc-cni/e2e/apiproxy"
	"github.com/vpc-cni/vpc-cni/e2e/badday"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
)

// step is one thing that happens.
type step struct {
	name string
	do   func(context.Context) error
}

// script draws the day: everything once, in the seed's order, and again as often as the day is large.
func (d *day) script() (steps []step) {
	for range 1 + d.size/100 {
		round := []step{
			{"two StatefulSets roll", d.roll},
			{"force deletes, late DELs", d.force},
			{"a storm of Jobs", func(ctx context.Context) error { return d.storm(ctx, d.size*3/10) }},
			{"a full node, and Jobs whose end is not told", d.crowd},
			{"sandboxes restart, same UID", d.restart},
			{"the knob goes off and on", d.toggle},
			{"the key is renamed, and back", d.rename},
			{"a daemon restarts while pods roll", d.bounce},
			{"the API is cut off while pods roll", d.cut},
			{"the API is silent while Jobs run", d.silence},
			{"RBAC refuses while pods roll", func(ctx context.Context) error { return d.refuse(ctx, d.roles.role) }},
			{"a policy refuses while pods roll", func(ctx context.Context) error { return d.refuse(ctx, d.roles.policy) }},
		}
		d.random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		steps = append(steps, round...)
	}
	return steps
}

// some draws a StatefulSet.
func (d *day) some() []*member { return d.sets[d.random.IntN(len(d.sets))] }

func (d *day) roll(ctx context.Context) error {
	pods := d.some()
	if other := d.some(); other[0] != pods[0] {
		pods = append(append([]*member{}, pods...), other...)
	}
	return each(ctx, pods, func(ctx context.Context, m *member) error { return d.replace(ctx, m, false) })
}

// force deletes objects at once: the successor's ADD comes before the old sandbox's DEL, which half of them hold back, and
// which is sent once more at the end.
func (d *day) force(ctx context.Context) error {
	pods := d.some()
	held := map[*member]bool{}
	for _, m := range pods {
		held[m] = d.random.IntN(2) == 0
	}
	return each(ctx, pods, func(ctx context.Context, m *member) error {
		old, node := m.pod, m.pod.Spec.NodeName
		if held[m] {
			if err := d.Order(ctx, node, sandbox.HoldDEL, old.UID); err != nil {
				return err
			}
		}
		if err := d.replace(ctx, m, true); err != nil {
			return err
		}
		if held[m] {
			if err := d.Order(ctx, node, sandbox.ReleaseDEL, old.UID); err != nil {
				return err
			}
		}
		if err := d.await(ctx, "DEL of "+m.name, func() bool { return d.ended(string(old.UID)) }); err != nil {
			return err
		}
		return d.Order(ctx, node, sandbox.ReplayDEL, old.UID)
	})
}

// ended tells whether every sandbox of a pod has had its DEL. Mu is held.
func (d *day) ended(uid string) bool {
	for _, box := range d.boxes {
		if box.UID == uid && box.To.IsZero() {
			return false
		}
	}
	return true
}

// storm runs Jobs that finish and stay; those of the storm before are deleted meanwhile.
func (d *day) storm(ctx context.Context, size int) error {
	old := d.done
	d.done = nil
	var jobs []job
	for range max(4, size) {
		runs := time.Duration(20+d.random.IntN(700)) * time.Millisecond
		jobs = append(jobs, d.job(d.random.IntN(len(d.Info().Nodes)), map[string]string{sandbox.RunTimeKey: runs.String()}))
	}
	deleted := make(chan error, 1)
	go func() {
		deleted <- each(ctx, old, d.away)
	}()
	made, err := d.run(ctx, jobs)
	d.done = made
	return errors.Join(err, <-deleted)
}

// job is a pod that finishes.
type job struct {
	node        int
	name        string
	annotations map[string]string // what the kubelet is to do with it
}

func (d *day) job(node int, annotations map[string]string) job {
	d.next++
	return job{node: node, name: fmt.Sprintf("job-%d", d.next), annotations: annotations}
}

func (d *day) away(ctx context.Context, pod *corev1.Pod) error {
	if err := d.Delete(ctx, pod, false); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// run runs Jobs until their sandboxes are gone.
func (d *day) run(ctx context.Context, jobs []job) ([]*corev1.Pod, error) {
	made := make([]*corev1.Pod, len(jobs))
	index := make([]int, len(jobs))
	for i := range index {
		index[i] = i
	}
	err := each(ctx, index, func(ctx context.Context, i int) (err error) {
		made[i], err = d.Create(ctx, jobs[i].node, jobs[i].name, func(pod *corev1.Pod) {
			pod.Annotations = jobs[i].annotations
		})
		if err != nil {
			return err
		}
		d.count()
		uid := string(made[i].UID)
		return d.await(ctx, "end of "+jobs[i].name, func() bool { return d.stopped[uid] && d.ended(uid) })
	})
	return made, err
}

// crowd fills a node twice with Jobs whose end the kubelet does not get round to telling: the second ones can only get
// addresses that the first ones' statuses still name. Readers of the status cannot know; readers of our keys must. In between it
// gets quiet: where every free address is still to be cleared, the daemon may give one out.
func (d *day) crowd(ctx context.Context) error {
	node := d.random.IntN(len(d.Info().Nodes))
	free := sizeOf(d.size).capacity
	for _, set := range d.sets {
		for _, m := range set {
			if m.node == node {
				free--
			}
		}
	}
	var all []*corev1.Pod
	for range 2 {
		var jobs []job
		for range free {
			jobs = append(jobs, d.job(node, map[string]string{
				sandbox.RunTimeKey: "300ms", sandbox.StatusDelayKey: "20ms", sandbox.EndDelayKey: "24h",
			}))
		}
		made, err := d.run(ctx, jobs)
		if err != nil {
			return err
		}
		all = append(all, made...)
		if err := d.quiet(ctx); err != nil {
			return err
		}
	}
	return each(ctx, all, d.away)
}

func (d *day) restart(ctx context.Context) error {
	pods := d.some()
	orders := map[*member]sandbox.Order{}
	for _, m := range pods {
		orders[m] = sandbox.RestartBox
		if d.random.IntN(2) == 0 {
			orders[m] = sandbox.OverlapBox
		}
	}
	return each(ctx, pods, func(ctx context.Context, m *member) error {
		uid := string(m.pod.UID)
		d.mu.Lock()
		before := d.starts[uid]
		d.mu.Unlock()
		if err := d.Order(ctx, m.pod.Spec.NodeName, orders[m], m.pod.UID); err != nil {
			return err
		}
		return d.await(ctx, "restart of "+m.name, func() bool { return d.starts[uid] > before })
	})
}

// set restarts all daemons with other keys; none turn the knob off.
func (d *day) set(ctx context.Context, keys ...string) error {
	value := map[string]string{"ANNOTATE_POD_IP": "false"}
	if len(keys) > 0 {
		value = map[string]string{"ANNOTATE_POD_IP": "true", "ANNOTATE_POD_IP_KEYS": strings.Join(keys, ",")}
	}
	d.keys = keys
	d.noteSetting()
	var ended []func()
	for _, node := range d.Info().Nodes {
		ended = append(ended, d.noteAway(node.Name))
	}
	err := d.Reconfigure(ctx, value)
	for _, end := range ended {
		end()
	}
	return err
}

func (d *day) noteSetting() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, node := range d.Info().Nodes {
		d.history.Settings[node.Name] = append(d.history.Settings[node.Name], badday.Setting{From: time.Now(), Keys: d.keys})
	}
	if len(d.history.Settings[d.Info().Nodes[0].Name]) > 1 {
		d.history.Starts += len(d.Info().Nodes)
	}
}

// noteAway notes that a node's daemon cannot reach the server from now on, until the function is called that it gives.
func (d *day) noteAway(node string) (ended func()) {
	from := time.Now()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.history.Away[node] = append(d.history.Away[node], badday.Span{From: from, To: time.Now()})
	}
}

func (d *day) turnOff(ctx context.Context) error { return d.set(ctx) }

func (d *day) toggle(ctx context.Context) error {
	before := d.keys
	if err := errors.Join(d.set(ctx), d.quiet(ctx)); err != nil {
		return err
	}
	return errors.Join(d.roll(ctx), d.set(ctx, before...))
}

func (d *day) rename(ctx context.Context) error {
	for _, keys := range [][]string{{otherKey}, {otherKey, awsKey}} {
		if err := errors.Join(d.set(ctx, keys...), d.quiet(ctx), d.roll(ctx)); err != nil {
			return err
		}
	}
	return d.set(ctx, awsKey)
}

// bounce stops a daemon while pods roll: their DELs are done without it, their ADDs wait for it.
func (d *day) bounce(ctx context.Context) error {
	node := d.Info().Nodes[d.random.IntN(len(d.Info().Nodes))].Name
	pods := d.some()
	ended := d.noteAway(node)
	if err := d.StopDaemon(ctx, node); err != nil {
		return err
	}
	rolled := make(chan error, 1)
	go func() {
		rolled <- each(ctx, pods, func(ctx context.Context, m *member) error { return d.replace(ctx, m, false) })
	}()
	err := pause(ctx, 700*time.Millisecond)
	err = errors.Join(err, d.StartDaemon(ctx, node))
	ended()
	d.mu.Lock()
	d.history.Starts++
	d.mu.Unlock()
	return errors.Join(err, <-rolled)
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-time.After(length):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *day) cut(ctx context.Context) error {
	return d.without(ctx, apiproxy.Way{Cut: true}, d.roll)
}

func (d *day) silence(ctx context.Context) error {
	return d.without(ctx, apiproxy.Way{Silent: true}, func(ctx context.Context) error {
		// Few enough that no address must be given out again before its key is cleared, which is allowed when there is no other.
		return d.storm(ctx, d.size/10)
	})
}

// without does something while the way of a node's daemon to the API server is bad, which goes on a little longer.
func (d *day) without(ctx context.Context, way apiproxy.Way, do func(context.Context) error) error {
	node := d.Info().Nodes[d.random.IntN(len(d.Info().Nodes))].Name
	ended := d.noteAway(node)
	if err := d.SetWay(node, way); err != nil {
		return err
	}
	err := errors.Join(do(ctx), pause(ctx, time.Duration(d.random.IntN(1500))*time.Millisecond), d.SetWay(node, apiproxy.Way{}))
	ended()
	return err
}

// refuse has the server refuse the daemons' writes while pods roll, and then lets pods roll again: what is taken is what
// brings the rest forward.
func (d *day) refuse(ctx context.Context, how refusal) error {
	from := time.Now()
	if err := d.roles.begin(ctx, how, d.sets[0][0].pod.Name); err != nil {
		return err
	}
	err := errors.Join(d.roll(ctx), d.roles.end(ctx, how, d.sets[0][0].pod.Name))
	d.mu.Lock()
	d.history.Refused = append(d.history.Refused, badday.Span{From: from, To: time.Now()})
	d.mu.Unlock()
	return errors.Join(err, d.roll(ctx))
}
