package eksnode_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/eksnode"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
)

// podIPs is the incumbent's annotation.
const podIPs = "vpc.amazonaws.com/pod-ips"

func (w *world) annotates() {
	n := w.node(5, map[string]string{"ANNOTATE_POD_IP": "true"})
	n.start()
	client, err := podapi.New(w.Config())
	check(w.t, err)
	p := n.sandbox()
	made, err := client.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		Spec:       corev1.PodSpec{NodeName: n.Name(), Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	})
	check(w.t, err)
	p.UID = made.UID
	value := func() string {
		got, err := client.Get(w.t.Context(), p.Namespace, p.Name)
		check(w.t, err)
		value, there := got.Annotations[podIPs]
		if !there {
			return "not there"
		}
		return value
	}
	rounds := 0
	w.eventually("an annotation that is written and cleared", func() (err error) {
		if p.addr, err = p.Add(w.t.Context()); err != nil { // its cache may not have the pod yet
			return err
		}
		rounds++
		if got := value(); got != p.addr.String() {
			w.t.Errorf("when ADD is back the annotation is %q, want %s", got, p.addr)
		}
		w.say("ADD comes back with %s when the annotation says so, too", p.addr)
		err = p.Del(w.t.Context())
		if got := value(); got != "" { // its cache may not have the annotation yet: then it clears nothing
			return fmt.Errorf("when DEL is back the annotation is %q: %w", got, err)
		}
		return err
	})
	w.say("DEL comes back when the annotation is empty (rounds: %d)", rounds)

	_, _, before := n.pool()
	unknown := n.sandbox()
	if addr, err := unknown.Add(w.t.Context()); err == nil {
		w.t.Errorf("a pod that the API server does not know gets %s", addr)
	}
	_, _, after := n.pool()
	unknown.del()
	_, _, end := n.pool()
	w.say("with the annotation on, a pod that the API server does not know is refused; assigned addresses before, after and after DEL: %d, %d, %d", before, after, end)
	if after != before+1 || end != before {
		w.t.Errorf("the refused pod's address is not kept until DEL")
	}
}

// attempts are the SDK's for one call.
const attempts = 3

// throttled: the fault table answers requests with 503 RequestLimitExceeded.
func (w *world) throttled() {
	n := w.node(6, map[string]string{"WARM_ENI_TARGET": "0"})
	w.throttledAtStart(n)
	w.throttledLater(n)
}

// throttledAtStart: without an address at its start the agent ends. It asks for three addresses, and then for one.
func (w *world) throttledAtStart(n *node) {
	primary := n.enis()[0].ID
	check(w.t, w.Spoil(w.t.Context(), scenario.Fault{
		Name: "start", Action: "AssignPrivateIpAddresses", Resource: primary, Kind: fault.Throttle, Times: 2 * attempts,
	}))
	err := n.Start(w.t.Context())
	ended, ok := errors.AsType[*eksnode.EndedError](err)
	if !ok {
		w.t.Fatalf("start with throttled requests: %v, want that the agent ends", err)
	}
	asked := n.requests("AssignPrivateIpAddresses")
	w.say("throttled %d times at its start, it ends by itself (%v); kubelet starts it again", len(asked), ended.Err)
	if len(asked) != 2*attempts {
		w.t.Errorf("it asked %d times, want %d", len(asked), 2*attempts)
	}
	n.start()
	w.say("the second start serves")
}

// throttledLater: a pool that cannot grow is tried again at the pool's next turn, five seconds later.
func (w *world) throttledLater(n *node) {
	const full = 3
	subnet := n.enis()[0].SubnetID
	check(w.t, w.Spoil(w.t.Context(), scenario.Fault{
		Name: "later", Action: "CreateNetworkInterface", Resource: subnet, Kind: fault.Throttle, Times: attempts,
	}))
	pods := n.addMany(full)
	began := time.Now()
	next := n.add()
	distinct(w.t, append(pods, next))
	created := n.requests("CreateNetworkInterface")
	if len(created) != attempts+1 {
		w.t.Fatalf("%d requests for an ENI, want %d", len(created), attempts+1)
	}
	first, last := created[0], created[attempts]
	for i, r := range created[:attempts] {
		if r.InvocationID != first.InvocationID || r.Attempt != i+1 || r.Code != "RequestLimitExceeded" {
			w.t.Errorf("request %d: attempt %d of %s, %s", i+1, r.Attempt, r.InvocationID, r.Code)
		}
	}
	if last.InvocationID == first.InvocationID || last.Code != "" {
		w.t.Errorf("the last request: %s, %s", last.InvocationID, last.Code)
	}
	w.say("throttled %d times while its pool is empty: all within %.1f s, then it gives up until the pool's next turn, %.1f s after the first; the waiting pod is refused %d times in %.1f s and then gets %s",
		attempts, created[attempts-1].Time.Sub(first.Time).Seconds(), last.Time.Sub(first.Time).Seconds(), next.refused, time.Since(began).Seconds(), next.addr)
}

// usualLag is how far behind the metadata are in a world that is told nothing else; an address that is gone, twice as long.
const usualLag = time.Second

// lateMetadata: the instance metadata are further behind EC2 than usual.
func (w *world) lateMetadata() {
	waits, believes := w.node(9, map[string]string{"WARM_ENI_TARGET": "0"}), w.node(10, map[string]string{"WARM_ENI_TARGET": "0"})
	waits.start()
	believes.start()
	w.attaching.Wait()
	w.t.Cleanup(func() { w.lag(context.Background(), usualLag) })
	w.notListedYet(waits)
	w.stillListed(believes)
}

// refusingMetadata: the instance metadata answer five requests a second, and the others with 503.
func (w *world) refusingMetadata() {
	n := w.node(1, nil)
	check(w.t, w.Operate(w.t.Context(), "/metadata/limit", map[string]any{"perSecond": 5, "burst": 10}))
	began := time.Now()
	n.start()
	took := time.Since(began)
	check(w.t, w.Operate(w.t.Context(), "/metadata/limit", map[string]any{}))
	w.say("metadata that answer five requests a second: it serves %.1f s after its start", took.Seconds())
	n.add()
}

func (w *world) lag(ctx context.Context, d time.Duration) {
	w.t.Helper()
	late := scenario.Duration(d)
	check(w.t, w.Delay(ctx, scenario.Delays{IMDS: &late}))
}

// notListedYet: a new ENI serves pods only when the metadata list it. The agent looks after 0.1, 0.2, 0.4 s and so on.
func (w *world) notListedYet(n *node) {
	const late, full = 10 * time.Second, 3
	w.lag(w.t.Context(), late)
	n.addMany(full)
	began := time.Now()
	next := n.add()
	took := time.Since(began)
	attached := n.requests("AttachNetworkInterface")
	if len(attached) != 1 {
		w.t.Fatalf("it attached %d ENIs while it waited for one, want 1", len(attached))
	}
	served := time.Since(attached[0].Time)
	w.say("metadata %s behind: the pod that needs the second ENI is refused %d times in %.1f s and then gets %s, %.1f s after the ENI was attached",
		late, next.refused, took.Seconds(), next.addr, served.Seconds())
	if served < late {
		w.t.Errorf("the pod was served %s after the ENI was attached: before the metadata listed it", served)
	}
	if !w.answers(n.Network(), next.addr) {
		w.t.Errorf("%s does not answer its own node", next.addr)
	}
}

// stillListed: after a restart the agent believes the metadata, and hands out addresses that EC2 has taken away.
func (w *world) stillListed(n *node) {
	w.lag(w.t.Context(), time.Hour)
	primary := n.enis()[0]
	check(w.t, w.Operate(w.t.Context(), "/enis/unassign", map[string]any{"eni": primary.ID, "addresses": primary.Secondary}))
	check(w.t, n.Stop())
	n.start()
	p := n.add()
	if n.enis()[0].Holds(p.addr) {
		w.t.Fatalf("%s is still the node's in EC2: nothing is proved", p.addr)
	}
	peer, err := w.Machine(machine(9))
	check(w.t, err)
	before := w.drops()
	reached := w.answersWithin(silence, p.Network(), peer.Address)
	lost := w.drops() - before
	w.say("EC2 has taken %v away, the metadata list them: after a restart a pod gets %s, and its packets are lost (%d at the source check)",
		primary.Secondary, p.addr, lost)
	if reached || lost == 0 {
		w.t.Errorf("a pod with an address that is not the node's is answered: %t, packets lost: %d", reached, lost)
	}
}

// drops are the packets that the VPC dropped because they came from the wrong ENI.
func (w *world) drops() uint64 {
	w.t.Helper()
	state, err := w.State(w.t.Context())
	check(w.t, err)
	return state.Drops["source-check"]
}

// limitCode is EC2's for one ENI too many.
const limitCode = "AttachmentLimitExceeded"

// TestIncumbentWithPartialMetadata: a new ENI is in the metadata, but its device number is 0 for a while, as the primary one's. Seen
// for seconds on EC2; ten, so that a slow machine sees it, too.
func TestIncumbentWithPartialMetadata(t *testing.T) {
	w := bootWith(t, map[string]string{"metadata-device": "10s"}, "t3.small", "t3.small")
	w.expected = limitCode
	w.try("ADeviceNumberThatIsLate", true, (*world).lateDevice)
	w.try("MetadataThatRefuseRequests", false, (*world).refusingMetadata)
}

// lateDevice: the agent takes the new ENI for the primary one, fails, forgets it and attaches the next; it finds both again at its
// reconcile, a minute after its last change.
func (w *world) lateDevice() {
	n := w.node(0, map[string]string{"WARM_ENI_TARGET": "0"})
	n.start()
	const full = 3
	n.addMany(full)
	began := time.Now()
	next := n.add()
	took := time.Since(began)
	beyond := 0
	for _, r := range n.requests("AttachNetworkInterface") {
		if r.Code == limitCode {
			beyond++
		}
	}
	w.say("device number 10 s late: the pod that needs one more ENI waits %.0f s; two more are attached, and %d times a fourth was made, refused (%s) and deleted",
		took.Seconds(), beyond, limitCode)
	if attached := n.done("AttachNetworkInterface"); attached != 2 {
		w.t.Errorf("it attached %d ENIs, want 2", attached)
	}
	if beyond == 0 {
		w.t.Error("it never asked for more ENIs than the instance type has")
	}
	if !w.answers(n.Network(), next.addr) {
		w.t.Errorf("%s does not answer its own node", next.addr)
	}
	w.eventually("no ENI beside the attached ones", func() error { return n.has(full) })
}
