package reconcile_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func (n *node) opThrottle(_ op, rng *rand.Rand) {
	d := upTo(rng, 40*time.Second)
	n.cloud.throttled = time.Now().Add(d)
	n.troubled(d + recovery(pool.ClassThrottled))
	n.note("throttled for %s", d)
}

// drawCall draws which calls a fault is about.
func drawCall(rng *rand.Rand) string {
	list := []string{"", "", "Observe", "CreateENI", "AttachENI", "SetDeleteOnTermination", "AssignAddresses", "UnassignAddresses", "UnassignAddresses", "DetachENI", "DetachENI", "DeleteENI", "DeleteENI"} // the last ones are rare calls
	return list[rng.IntN(len(list))]
}

func (n *node) spoil(s spoilt, lasts, felt time.Duration) {
	s.until = time.Now().Add(lasts)
	n.cloud.spoilt = append(n.cloud.spoilt, &s)
	n.troubled(lasts + felt)
	n.note("EC2: %s %s %d times, for %s, of %q", s.how, s.code, s.left, lasts, s.action)
}

// drawCode draws a code, each class as often as the others, since most codes are of two of them.
func (n *node) drawCode(rng *rand.Rand, action string) string {
	class := classes[rng.IntN(len(classes))]
	if class == pool.ClassLimit && rng.IntN(4) > 0 {
		class = pool.ClassUnknown // limits that are none are believed for so long that they would hide all else
	}
	var list []string
	for _, code := range codes().codes {
		if classOf(action, code) == class {
			list = append(list, code)
		}
	}
	if class == pool.ClassLimit {
		n.limits = true
	}
	n.troubled(recovery(class))
	if rng.IntN(2) == 0 {
		return list[n.seed%uint64(len(list))] // so that some hundred seeds have had them all
	}
	return list[rng.IntN(len(list))]
}

func (n *node) opRefuseOnce(_ op, rng *rand.Rand) {
	action := drawCall(rng)
	code := n.drawCode(rng, action)
	n.spoil(spoilt{action: action, how: refuse, code: code, left: 1 + rng.IntN(2)}, 0, recovery(classOf(action, code)))
}

func (n *node) opRefuse(_ op, rng *rand.Rand) {
	action := drawCall(rng)
	code := n.drawCode(rng, action)
	n.spoil(spoilt{action: action, how: refuse, code: code}, 5*time.Second+upTo(rng, 90*time.Second), recovery(classOf(action, code)))
}

func (n *node) opAnswerLost(_ op, rng *rand.Rand) {
	n.spoil(spoilt{action: drawCall(rng), how: answerLost, left: 1 + rng.IntN(2)}, 0, recovery(pool.ClassUnknown))
}

func (n *node) opRequestLost(_ op, rng *rand.Rand) {
	n.spoil(spoilt{action: drawCall(rng), how: requestLost, left: 1 + rng.IntN(3)}, 0, recovery(pool.ClassUnknown))
}

func (n *node) opHang(_ op, rng *rand.Rand) {
	n.spoil(spoilt{action: drawCall(rng), how: []string{hangDone, hangUndone}[rng.IntN(2)], left: 1}, 0, 2*time.Minute+recovery(pool.ClassUnknown))
}

func (n *node) opSlowCalls(_ op, rng *rand.Rand) {
	d := upTo(rng, 2*time.Minute)
	n.cloud.slow = time.Now().Add(d)
	n.troubled(d + 2*time.Minute)
	n.note("calls are slow for %s", d)
}

// opLag makes readings of EC2 stale for a while.
func (n *node) opLag(_ op, rng *rand.Rand) {
	n.cloud.lag = upTo(rng, 9*time.Second)
	n.note("readings lag by up to %s", n.cloud.lag)
}

// opSlowLinks changes what attaching, the guest's link and detaching take from now on. A link may never come.
func (n *node) opSlowLinks(_ op, rng *rand.Rand) {
	d := n.cloud.v.Delays()
	d.Attach = upTo(rng, 4*time.Second)
	d.Link = upTo(rng, 30*time.Second)
	d.Detach = upTo(rng, 40*time.Second)
	if rng.IntN(4) == 0 {
		d.Link = time.Minute + upTo(rng, 6*time.Minute)
	}
	n.cloud.v.SetDelays(d)
	n.troubled(10 * time.Minute)
	n.note("attaching takes %s, links %s, detaching %s", d.Attach, d.Link, d.Detach)
}

func (n *node) opAPIDown(_ op, rng *rand.Rand) {
	d := upTo(rng, time.Minute)
	if rng.IntN(4) == 0 {
		d *= 12
	}
	n.api.down = time.Now().Add(d)
	n.note("API down for %s", d)
}

func (n *node) opAPIRefuses(_ op, rng *rand.Rand) {
	d := upTo(rng, 10*time.Minute)
	n.api.refuses = time.Now().Add(d)
	n.note("API refuses patches for %s", d)
}

func (n *node) opPatchLost(_ op, rng *rand.Rand) {
	n.api.lost += 1 + rng.IntN(3)
	n.note("%d answers of the API will be lost", n.api.lost)
}

func (n *node) opDiskFull(_ op, rng *rand.Rand) {
	d := upTo(rng, 20*time.Second)
	n.full = []string{"", "open", "write", "rename"}[rng.IntN(4)]
	n.saves = time.Now().Add(d)
	n.troubled(d + 2*time.Minute)
	n.note("disk refuses %q for %s", n.full, d)
}

func (n *node) opDiskHangs(_ op, rng *rand.Rand) {
	d := upTo(rng, 20*time.Second)
	n.slows = time.Now().Add(d)
	n.troubled(d + 2*time.Minute)
	n.note("disk hangs for %s", d)
}

// stolen marks what works no more because of the driver, not of the daemon.
func (n *node) stolen(addrs ...netip.Addr) {
	defer n.count()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, addr := range addrs {
		n.thefts[addr] = time.Now()
		delete(n.released, addr)
	}
}

// unassign takes an address of the ENI behind the daemon's back.
func (n *node) unassign(addr address) {
	n.cloud.remember()
	if err := n.cloud.v.UnassignPrivateIpAddresses(time.Now(), vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: addr.eni, Addresses: []netip.Addr{addr.Addr}}); err != nil {
		n.fault("the world", "unassign: %v", err)
	}
	n.stolen(addr.Addr)
	n.troubled(2 * time.Minute)
	n.note("unassigned out of band: %s", addr.Addr)
}

// address is an address with its ENI.
type address struct {
	netip.Addr
	eni string
}

// held gives the secondary addresses at EC2 that sandboxes hold, or do not.
func (n *node) held(held bool) []address {
	var list []address
	for _, e := range n.cloud.own() {
		for _, addr := range e.Secondary {
			if held == slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool { return s.holds && s.addr == addr }) {
				list = append(list, address{addr, e.ID})
			}
		}
	}
	return list
}

// opSteal unassigns a free address behind the daemon's back, opRob one that is in use.
func (n *node) opSteal(o op, _ *rand.Rand) {
	if addr, ok := pick(n.held(false), o.N); ok {
		n.unassign(addr)
	}
}

func (n *node) opRob(o op, _ *rand.Rand) {
	if addr, ok := pick(n.held(true), o.N); ok {
		n.unassign(addr)
	}
}

// victim chooses an ENI that a human could detach.
func (n *node) victim(o op) (vpc.ENI, bool) {
	var list []stringer
	for _, e := range n.cloud.own() {
		if e.Attachment != nil && e.Attachment.Device > 0 && e.Attachment.Status == vpc.Attached {
			list = append(list, stringer(e.ID))
		}
	}
	id, ok := pick(list, o.N)
	e, found := n.cloud.v.ENI(string(id))
	return e, ok && found
}

type stringer string

func (s stringer) String() string { return string(s) }

func (n *node) opDetach(o op, _ *rand.Rand) {
	if e, ok := n.victim(o); ok {
		n.detach(e)
	}
}

func (n *node) detach(e vpc.ENI) {
	n.cloud.remember()
	if err := n.cloud.v.DetachNetworkInterface(time.Now(), vpc.DetachNetworkInterfaceInput{AttachmentID: e.Attachment.ID}); err != nil {
		n.fault("the world", "detach: %v", err)
	}
	n.stolen(e.Secondary...)
	n.cloud.taken[e.ID] = time.Now()
	n.troubled(8 * time.Minute)
	n.note("detached out of band: %s", e.ID)
}

// opDeleteENI detaches an ENI and deletes it as soon as it can be.
func (n *node) opDeleteENI(o op, _ *rand.Rand) {
	e, ok := n.victim(o)
	if !ok {
		return
	}
	n.detach(e)
	n.after(n.cloud.v.Delays().Detach+time.Second, func() {
		n.cloud.remember()
		now, _ := n.cloud.v.ENI(e.ID) // it may have got more addresses: EC2 assigns them to any ENI
		err := n.cloud.v.DeleteNetworkInterface(time.Now(), e.ID)
		n.note("deleted out of band: %s: %v", e.ID, err)
		if err == nil {
			n.stolen(now.Secondary...)
		}
	})
}

// opStranger attaches an ENI that is not the daemon's, and takes it away again.
func (n *node) opStranger(_ op, rng *rand.Rand) {
	e, err := n.cloud.v.CreateNetworkInterface(time.Now(), vpc.CreateNetworkInterfaceInput{SubnetID: subnetID, SecondaryCount: rng.IntN(2)})
	if err != nil {
		return
	}
	device := 0
	for _, o := range n.cloud.own() {
		if o.Attachment != nil {
			device = max(device, o.Attachment.Device)
		}
	}
	n.cloud.remember()
	a, err := n.cloud.v.AttachNetworkInterface(time.Now(), vpc.AttachNetworkInterfaceInput{InstanceID: n.cloud.instance, NetworkInterfaceID: e.ID, Device: device + 1})
	n.note("stranger %s: %v", e.ID, err)
	if err != nil {
		_ = n.cloud.v.DeleteNetworkInterface(time.Now(), e.ID)
		return
	}
	// The daemon may have asked for the place that the stranger took, and believes EC2's answer about that for long.
	stays := 10*time.Second + upTo(rng, 5*time.Minute)
	n.limits = true
	n.troubled(stays + recovery(pool.ClassLimit))
	n.after(stays, func() {
		n.cloud.remember()
		err := n.cloud.v.DetachNetworkInterface(time.Now(), vpc.DetachNetworkInterfaceInput{AttachmentID: a.ID})
		n.note("stranger %s leaves: %v", e.ID, err)
		n.after(n.cloud.v.Delays().Detach+time.Second, func() { _ = n.cloud.v.DeleteNetworkInterface(time.Now(), e.ID) })
	})
}

// opCrowd lets other nodes take addresses of the subnet for a while.
func (n *node) opCrowd(_ op, rng *rand.Rand) {
	sub, _ := n.cloud.v.Subnet(subnetID)
	count := min(sub.Free-1, 1+rng.IntN(49), n.kind.IPv4*4)
	if count < 1 {
		return
	}
	e, err := n.cloud.v.CreateNetworkInterface(time.Now(), vpc.CreateNetworkInterfaceInput{SubnetID: subnetID, SecondaryCount: count})
	stays := upTo(rng, 5*time.Minute)
	n.note("%d addresses of the subnet taken for %s: %v", count+1, stays, err)
	if err != nil {
		return
	}
	n.troubled(stays + recovery(pool.ClassSubnetFull))
	n.after(stays, func() { _ = n.cloud.v.DeleteNetworkInterface(time.Now(), e.ID) })
}

// opFlush is somebody's hand in the kernel, with or without a notice.
func (n *node) opFlush(o op, rng *rand.Rand) {
	n.host.flush(o.N, rng.IntN(3) == 0)
	n.note("kernel flushed")
	if rng.IntN(2) == 0 {
		n.host.notify()
	}
}

func (n *node) opDeaf(_ op, rng *rand.Rand) {
	n.host.deaf = time.Now().Add(upTo(rng, 90*time.Second))
	n.troubled(2 * time.Minute)
	n.note("changes of the kernel go unnoticed for %s", time.Until(n.host.deaf))
}

func (n *node) opApplyFails(_ op, rng *rand.Rand) {
	n.host.fails, n.host.how = 1+rng.IntN(3), []string{"before", "halfway", "after"}[rng.IntN(3)]
	n.troubled(2 * time.Minute)
	n.note("%d Applies fail %s", n.host.fails, n.host.how)
}

func (n *node) opApplyHangs(_ op, rng *rand.Rand) {
	n.host.hangs = 1 + rng.IntN(2)
	n.troubled(3 * time.Minute)
	n.note("%d Applies hang", n.host.hangs)
}

// endFaults ends all that the driver has set.
func (n *node) endFaults() {
	c := n.cloud
	c.throttled, c.slow, c.spoilt, c.lag = time.Time{}, time.Time{}, nil, 0
	n.api.down, n.api.refuses, n.api.lost = time.Time{}, time.Time{}, 0
	n.saves, n.slows = time.Time{}, time.Time{}
	n.host.deaf, n.host.fails, n.host.hangs = time.Time{}, 0, 0
	c.v.SetDelays(vpc.Delays{Attach: time.Second, Link: 2 * time.Second, Detach: 3 * time.Second})
	n.mu.Lock()
	n.armed = nil
	n.mu.Unlock()
}
