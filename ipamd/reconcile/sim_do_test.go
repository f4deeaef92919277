package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func upTo(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(most)))
}

// wanted counts the pods that kubelet wants to run.
func (n *node) wanted() int {
	count := 0
	for _, p := range n.pods {
		if p.wanted {
			count++
		}
	}
	return count
}

// crowded is how many pods kubelet is given at most: somewhat more than there is room for, so that a full node is seen too.
func (n *node) crowded() bool { return n.wanted() >= n.kind.ENIs*(n.kind.IPv4-1)+3 }

func (n *node) opAdd(o op, _ *rand.Rand) {
	if !n.crowded() {
		n.add(n.newPod("", fmt.Sprint(o.ID)))
	}
}

func (n *node) opBurst(o op, rng *rand.Rand) {
	for k := range 3 + rng.IntN(5) {
		if !n.crowded() {
			n.add(n.newPod("", fmt.Sprintf("%d.%d", o.ID, k)))
		}
	}
}

// running chooses a sandbox that runs and is its pod's latest.
func (n *node) running(o op) (*sandbox, bool) {
	return pick(n.runs(func(s *sandbox) bool { return s.pod.current == s && s.pod.wanted }), o.N)
}

func (n *node) opDelete(o op, rng *rand.Rand) {
	s, ok := n.running(o)
	if !ok {
		return
	}
	n.note("delete %s", s)
	s.pod.wanted = false
	n.api.end(s.pod.Pod, false)
	n.after(upTo(rng, 3*time.Second), func() { n.del(s) })
	gone := 4*time.Second + upTo(rng, 40*time.Second)
	if rng.IntN(10) == 0 {
		gone = upTo(rng, 20*time.Minute) // a finalizer
	}
	n.after(gone, func() { n.api.end(s.pod.Pod, true) })
}

// opComplete is a Job's end: the sandbox goes, the pod stays in the API.
func (n *node) opComplete(o op, _ *rand.Rand) {
	if s, ok := n.running(o); ok {
		n.note("complete %s", s)
		s.pod.wanted = false
		n.del(s)
	}
}

// opReplace is a StatefulSet's rolling update: a pod of the same name and another UID, the old sandbox's DEL late and twice.
func (n *node) opReplace(o op, rng *rand.Rand) {
	s, ok := n.running(o)
	if !ok {
		return
	}
	n.note("replace %s", s)
	s.pod.wanted = false
	if rng.IntN(3) > 0 {
		n.gone(s)
	}
	n.add(n.newPod(s.pod.Name[4:], fmt.Sprint(o.ID)))
	late := upTo(rng, 50*time.Second)
	n.after(late, func() { n.del(s); n.del(s) })
}

// opAgain is a new sandbox of the same pod, the old one's DEL before it or after.
func (n *node) opAgain(o op, rng *rand.Rand) {
	s, ok := n.running(o)
	if !ok {
		return
	}
	n.note("again %s", s)
	if rng.IntN(2) == 0 {
		n.del(s)
		n.after(upTo(rng, 2*time.Second), func() {
			if s.pod.wanted && s.pod.current == s {
				n.add(s.pod)
			}
		})
		return
	}
	n.gone(s)
	n.add(s.pod)
	n.after(upTo(rng, 20*time.Second), func() { n.del(s) })
}

// opOverlap begins a newer sandbox of the same pod while the old one stands and its DEL is far.
func (n *node) opOverlap(o op, rng *rand.Rand) {
	s, ok := n.running(o)
	if !ok {
		return
	}
	n.note("overlap %s", s)
	n.add(s.pod)
	if rng.IntN(4) > 0 {
		n.after(upTo(rng, 40*time.Second), func() { n.del(s) })
	} else {
		n.after(upTo(rng, 40*time.Second), func() { n.end(s) })
	}
}

// opImpatience begins a newer sandbox of a pod while the older one's plugin is still at work.
func (n *node) opImpatience(o op, rng *rand.Rand) {
	var list []*sandbox
	for _, s := range n.sandboxes {
		if s.works && s.holds && s.pod.wanted && s.pod.current == s {
			list = append(list, s)
		}
	}
	s, ok := pick(list, o.N)
	if !ok {
		return
	}
	n.note("impatience with %s", s)
	n.add(s.pod)
	n.after(upTo(rng, time.Minute), func() { n.del(s) })
}

// opLateDel repeats a DEL of a sandbox that ended long ago.
func (n *node) opLateDel(o op, _ *rand.Rand) {
	var list []*sandbox
	for _, s := range n.sandboxes {
		if s.ended {
			list = append(list, s)
		}
	}
	if s, ok := pick(list, o.N); ok {
		n.note("late DEL %s", s)
		n.del(s)
	}
}

// opGC gives the runtime's list of what is valid.
func (n *node) opGC(o op, _ *rand.Rand) {
	var valid []pool.Key
	for _, s := range n.sandboxes {
		if !s.ended && !s.dead {
			valid = append(valid, s.key)
		}
	}
	l := n.life
	n.all.Go(func() {
		var freed []pool.Key
		var err error
		n.ask(fmt.Sprintf("gc/%d", o.ID), func() { freed, err = l.loop.GC(context.Background(), "aws-cni", valid) })
		n.note("gc of all but %d: %v %v", len(valid), freed, err)
		for _, key := range freed {
			if slices.Contains(valid, key) {
				n.fault("gc", "GC freed the valid %s", key.Sandbox)
			}
		}
	})
}

// opVanish ends a sandbox of which no DEL will ever tell.
func (n *node) opVanish(o op, _ *rand.Rand) {
	if s, ok := n.running(o); ok {
		n.note("vanish %s", s)
		s.pod.wanted = false
		n.end(s)
		n.api.end(s.pod.Pod, true)
	}
}

func (n *node) opCrash(op, *rand.Rand) {
	n.note("crash")
	n.life.cancel()
}

// effects are the points at which a crash can be ordered, each before and after.
func effects() []string {
	return []string{
		"cloud Observe", "cloud CreateENI", "cloud AttachENI", "cloud SetDeleteOnTermination", "cloud AssignAddresses",
		"cloud UnassignAddresses", "cloud DetachENI", "cloud DeleteENI",
		"save state", "disk open", "disk write", "disk rename", "host Apply", "annotate Submit", "patch present", "patch empty", "patch absent",
	}
}

// opCrashAt sets a trap: the daemon dies at the next such effect.
func (n *node) opCrashAt(_ op, rng *rand.Rand) {
	list := effects()
	t := &trap{effect: list[rng.IntN(len(list))], after: rng.IntN(2) == 0}
	n.mu.Lock()
	n.armed = append(n.armed, t)
	n.mu.Unlock()
	n.note("trap at %s, after %v", t.effect, t.after)
}

// opReboot ends every sandbox and all that the kernel held; what lies under /run is gone with it, or is of another boot.
func (n *node) opReboot(_ op, rng *rand.Rand) {
	n.note("reboot")
	defer n.life.cancel() // last: who wakes must find all of it done
	for _, s := range n.sandboxes {
		s.dead, s.ended = true, true
		n.cutOff(s)
		s.holds = false
	}
	n.host.reset()
	n.mu.Lock()
	clear(n.released) // nobody is left to confuse: addresses of before the reboot do not cool down
	n.mu.Unlock()
	n.count()
	lost := rng.IntN(2) == 0
	n.atStart = append(n.atStart, func() {
		n.settings.BootID += "+"
		if lost {
			_ = n.disk.Remove(statePath)
			n.api.forget()
		}
	})
	for _, p := range n.pods {
		if p.wanted {
			n.after(5*time.Second+upTo(rng, 20*time.Second), func() {
				if p.wanted && p.current.dead {
					n.add(p)
				}
			})
		}
	}
}

func (n *node) opSettings(_ op, rng *rand.Rand) {
	n.note("settings")
	flip, keys := rng.IntN(2) == 0, [][]string{{"a/ip"}, {"b/ip"}, {"a/ip", "b/ip"}}[rng.IntN(3)]
	n.atStart = append(n.atStart, func() {
		if flip {
			n.settings.Annotate = !n.settings.Annotate
		} else {
			n.settings.Keys = keys
		}
	})
	n.life.cancel()
}

// opStateLost spoils the state file while the daemon is down and pods live.
func (n *node) opStateLost(_ op, rng *rand.Rand) {
	how := []string{"removed", "empty", "truncated", "of a newer version"}[rng.IntN(4)]
	n.note("state file %s", how)
	n.covered("state file " + how)
	defer n.life.cancel()
	n.atStart = append(n.atStart, func() {
		data, _ := n.disk.ReadFile(statePath)
		switch how {
		case "removed":
			_ = n.disk.Remove(statePath)
		case "empty":
			_ = n.disk.WriteFile(statePath, nil, 0o600)
		case "truncated":
			_ = n.disk.WriteFile(statePath, data[:len(data)*2/3], 0o600)
		default:
			_ = n.disk.WriteFile(statePath, []byte(`{"version":99}`), 0o600)
		}
		n.api.forget()
		n.mu.Lock()
		clear(n.released) // nobody remembers
		for _, s := range n.sandboxes {
			s.lost, s.found = s.lost || s.holds, false
		}
		n.mu.Unlock()
	})
}

// opPeace ends all trouble in the middle of the hour. After a while every pod that kubelet wants must run.
func (n *node) opPeace(op, *rand.Rand) {
	n.endFaults()
	n.note("peace")
	n.after(peaceLasts, func() { n.checkLive("peace") })
}

// peaceLasts is longer than all pauses that faults can lead to, but for limits.
const peaceLasts = 12 * time.Minute
