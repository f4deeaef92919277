package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
	"github.com/vpc-cni/vpc-cni/ipamd/reconcile"
)

// simPod is a pod of the API as kubelet sees it: while it is wanted and has no sandbox that runs, a new one is made.
type simPod struct {
	pool.Pod
	wanted  bool
	tries   int
	current *sandbox
}

func (p *simPod) String() string { return p.UID }

// sandbox is one pod sandbox, as the runtime and the plugin see it.
type sandbox struct {
	pod   *simPod
	no    int // in the order of their making
	key   pool.Key
	addr  netip.Addr
	since time.Time // of its address
	life  int       // of the daemon that gave it
	holds bool      // from the address's assignment to the end of its kernel state
	veth  bool      // its veth and route stand
	built bool      // they did once
	stale bool      // its address was taken away shortly before it was given out
	runs  bool      // its ADD succeeded and nothing has ended it
	ended bool      // the runtime has given it up: DEL has begun, or will never come
	until time.Time // when it did
	dead  bool      // the machine was rebooted under it
	lost  bool      // the state file that spoke of it was lost
	found bool      // the kernel has shown it since, and that is on disk
	works bool      // its plugin is at work
	dels  int       // DELs that began
}

func (s *sandbox) String() string { return s.key.Sandbox }

// plugin is the plugin's name on the agenda.
func (s *sandbox) plugin() string { return "plugin of " + s.key.Sandbox }

// link is the host veth's name.
func (s *sandbox) link() string { return "eni-" + s.pod.Name }

// newPod makes a pod of the API, named after the operation that it comes from.
func (n *node) newPod(name, uid string) *simPod {
	if name == "" {
		name = uid
	}
	p := &simPod{Pod: pool.Pod{Namespace: "default", Name: "pod-" + name, UID: "uid-" + uid}, wanted: true}
	n.mu.Lock()
	n.pods = append(n.pods, p)
	n.mu.Unlock()
	n.api.create(p.Pod)
	return p
}

// add makes a sandbox of the pod and runs its ADD, as runtime, plugin and server do together.
func (n *node) add(p *simPod) *sandbox {
	p.tries++
	n.mu.Lock()
	s := &sandbox{pod: p, no: len(n.sandboxes) + 1, key: pool.Key{Network: "aws-cni", Sandbox: fmt.Sprintf("%s-%d", p.Name[4:]+"/"+p.UID[4:], p.tries), IfName: "eth0"}}
	n.sandboxes = append(n.sandboxes, s)
	p.current = s
	n.mu.Unlock()
	s.works = true
	n.all.Go(func() {
		err := n.plugin(s)
		s.works = false
		if err == nil {
			return
		}
		n.note("ADD %s failed: %v", s, err)
		if errors.Is(err, errBoth) { // the runtime waits for what is left of the plugin's process
			_ = n.pauseUpTo(context.Background(), "both/"+s.key.Sandbox, int64(40*time.Second))
		}
		n.afterFailure(s)
	})
	return s
}

var (
	errKilled = errors.New("the plugin was killed")
	errBoth   = errors.New("plugin and daemon were killed")
	errRoute  = errors.New("the sandbox is gone")
)

// fates are how plugins end otherwise than by themselves, each of so many in a thousand.
var fates = []struct {
	name  string
	share uint64
}{{"killed before the veth", 25}, {"killed after the veth", 25}, {"killed after done", 20}, {"done not answered", 20}, {"slow", 25}, {"asked twice", 100}}

func (n *node) fate(s *sandbox) string {
	x := n.hash("fate", s.key.Sandbox) % 1000
	for _, f := range fates {
		if x < f.share {
			return f.name
		}
		x -= f.share
	}
	return ""
}

// plugin is one exec of the plugin. A connection that ends before done is an Abort.
func (n *node) plugin(s *sandbox) error {
	_ = n.pause(context.Background(), "exec/"+s.key.Sandbox)
	if s.dead || n.over {
		return errKilled
	}
	l := n.life
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	began := time.Now()
	lease, err := n.assign(ctx, l, s)
	if err != nil {
		n.refused(err)
		n.checkServed(l, err, began)
		return err
	}
	n.granted(l, s, lease)
	fate := n.fate(s)
	if fate != "" {
		n.covered("plugin " + fate)
	}
	switch fate {
	case "killed before the veth":
		n.abort(ctx, l, s)
		return errKilled
	case "slow":
		_ = n.pauseUpTo(context.Background(), "slow/"+s.key.Sandbox, int64(45*time.Second))
	case "asked twice":
		_ = n.pause(context.Background(), "again/"+s.key.Sandbox)
		if again, err := n.assign(ctx, l, s); err == nil && again.Assignment.Addr != s.addr {
			n.fault("same answer", "ADD of %s again gave %s, not %s", s, again.Assignment.Addr, s.addr)
		}
	}
	_ = n.pause(context.Background(), "plugin/"+s.key.Sandbox)
	if err := n.setup(l, s); err != nil {
		n.abort(ctx, l, s)
		return err
	}
	if fate == "killed after the veth" {
		if n.hash("both", s.key.Sandbox)%2 == 0 {
			n.turn(s.plugin())
			n.note("the daemon is killed with the plugin of %s", s)
			l.cancel()
			return errBoth
		}
		n.tellAbort(ctx, l, s)
		return errKilled
	}
	_ = n.pause(context.Background(), "done/"+s.key.Sandbox)
	return n.confirm(l, s, fate)
}

// setup is the plugin's kernel work. What is in the way of it is removed only if the daemon says so.
func (n *node) setup(l *life, s *sandbox) error {
	if s.dead || s.ended {
		return errRoute
	}
	return n.host.setup(s, func() error {
		var lease reconcile.Lease
		var err error
		n.ask(s.plugin(), func() { lease, err = l.loop.Check(context.Background(), s.key) })
		if err == nil && lease.Assignment.Addr != s.addr {
			err = fmt.Errorf("the address is %s by now", lease.Assignment.Addr)
		}
		return err
	})
}

// confirm sends done. Unless that is answered the veth goes away again.
func (n *node) confirm(l *life, s *sandbox, fate string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	n.ask(s.plugin(), func() { err = l.loop.Done(ctx, s.key) })
	switch {
	case s.dead:
		return errKilled
	case err != nil:
		n.abort(ctx, l, s)
		return err
	case fate == "done not answered":
		n.gone(s)
		return errKilled
	case fate == "killed after done":
		return errKilled
	case !s.veth:
		return errRoute // a newer sandbox took the name before the answer came
	}
	n.note("runs %s %s", s, s.addr)
	s.runs = true
	n.api.started(s.pod.Pod, s.key.Sandbox, s.addr.String(), true)
	n.count()
	return nil
}

func (n *node) assign(ctx context.Context, l *life, s *sandbox) (lease reconcile.Lease, err error) {
	n.ask(s.plugin(), func() { lease, err = l.loop.Assign(ctx, s.key, s.pod.Pod, "/run/netns/"+s.key.Sandbox) })
	return lease, err
}

func (n *node) abort(ctx context.Context, l *life, s *sandbox) {
	n.gone(s)
	n.tellAbort(ctx, l, s)
}

func (n *node) tellAbort(ctx context.Context, l *life, s *sandbox) {
	n.ask(s.plugin(), func() { _ = l.loop.Abort(ctx, s.key) })
}

// afterFailure is the runtime's and kubelet's part after an ADD that failed: usually a DEL, then another sandbox.
func (n *node) afterFailure(s *sandbox) {
	if s.dead || n.over {
		return
	}
	_ = n.pauseUpTo(context.Background(), "give up/"+s.key.Sandbox, int64(3*time.Second))
	if n.hash("del", s.key.Sandbox)%10 == 0 {
		n.note("no DEL for %s", s)
		n.end(s)
	} else {
		n.del(s)
	}
	_ = n.pauseUpTo(context.Background(), "backoff/"+s.key.Sandbox, int64(min(30, 3*s.pod.tries))*int64(time.Second))
	if s.pod.wanted && s.pod.current == s && !n.over {
		n.add(s.pod)
	}
}

// gone removes a sandbox's kernel state: from here on nothing of it is left on the node.
func (n *node) gone(s *sandbox) {
	n.host.teardown(s)
	n.cutOff(s)
	n.mu.Lock()
	if s.holds {
		n.rested[s.addr] = time.Now()
	}
	s.holds = false
	n.mu.Unlock()
	n.count()
}

// end is when the runtime gives a sandbox up.
func (n *node) end(s *sandbox) {
	if !s.ended {
		s.until = time.Now()
	}
	s.ended = true
	n.gone(s)
}

// cutOff is when a sandbox speaks to nobody any more, by whatever cause.
func (n *node) cutOff(s *sandbox) {
	n.api.started(s.pod.Pod, s.key.Sandbox, "", false)
	n.mu.Lock()
	if s.runs && (!s.lost || s.found) { // one whose ADD failed has never spoken to anybody
		n.released[s.addr] = release{time.Now(), s.pod.UID}
	}
	s.veth, s.runs = false, false
	n.mu.Unlock()
}

// del runs one DEL; while the daemon is down it is kept and tried again.
func (n *node) del(s *sandbox) {
	n.end(s)
	s.dels++
	name := fmt.Sprintf("del/%s/%d", s.key.Sandbox, s.dels)
	n.all.Go(func() {
		for try := range 1200 {
			if try > 0 {
				_ = n.agenda.wait(context.Background(), now()+3*time.Second, name)
			}
			_ = n.pause(context.Background(), name)
			if n.over {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			found, err := n.release(ctx, s, name)
			cancel()
			if err == nil {
				n.note("DEL %s: known %v", s, found)
				return
			}
		}
		n.fault("del", "DEL of %s never succeeded", s)
	})
}

// release is the daemon's part of a DEL, with what it does about a sandbox that it has no record of.
func (n *node) release(ctx context.Context, s *sandbox, name string) (found bool, err error) {
	loop := n.life.loop
	n.ask(name, func() { _, found, err = loop.Release(ctx, s.key) })
	if err == nil && !found {
		n.ask(name, func() { err = loop.Departed(ctx, s.key, s.pod.Pod, s.link()) })
	}
	return found, err
}

// granted checks the laws about an address that was just given out.
func (n *node) granted(l *life, s *sandbox, lease reconcile.Lease) {
	a := lease.Assignment
	n.note("ADD %s: %s on %s", s, a.Addr, a.ENI)
	n.mu.Lock()
	r := n.released[a.Addr]
	var other *sandbox
	for _, o := range n.sandboxes {
		mine := o == s || o.pod == s.pod && !o.runs // the pod's own older sandbox: the veth's name is theirs both
		// A plugin that outlasted its daemon and the rest of its address builds in vain: its done will be refused.
		late := o.works && o.life != l.no && time.Since(o.since) > 30*time.Second
		if !mine && !late && o.holds && o.addr == a.Addr && (o.veth || !o.built && o.life == l.no && !o.ended) {
			other = o
		}
	}
	s.addr, s.since, s.life, s.holds = a.Addr, time.Now(), l.no, true
	n.mu.Unlock()
	n.count()
	if other != nil {
		n.fault("one holder", "%s given to %s while %s has it", a.Addr, s, other)
	}
	if !r.at.IsZero() && r.uid != s.pod.UID && a.Since.Before(r.at.Add(n.settings.Cooldown)) {
		n.fault("cooldown", "%s given to %s at %s, in cooldown since %s", a.Addr, s, a.Since.Sub(epoch()), r.at.Sub(epoch()))
	}
	n.checkCleared(s, a)
	if n.excused(a.Addr, a.Since) || n.cloud.detached(a.ENI, a.Since) {
		s.stale = true
		return
	}
	if !n.host.confirmed(a.Addr, a.ENI) && !n.host.flushed(a.Since) {
		n.fault("kernel first", "%s on %s given out before the kernel had it", a.Addr, a.ENI)
	}
	if problem := n.atEC2(a.Addr); problem != "" {
		n.fault("ours at EC2", "%s given to %s: %s", a.Addr, s, problem)
	}
}
