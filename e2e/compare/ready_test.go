package compare_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/distance"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/figures"
	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

const (
	readyBlocks  = 15
	waitBlocks   = 7
	pingInterval = 10 * time.Millisecond
	// lastReply is how long an answer to the last ping may take: losses that are none would be worse.
	lastReply    = 300 * time.Millisecond
	readyTimeout = 30 * time.Second
	// beforeADD is from a pod's sighting to its ADD: kubelet's admission and volumes, the sandbox's namespace and container.
	beforeADD = 50 * time.Millisecond
)

// kubelet runs pods on the nodes of both sides and pings them from their containers' start on.
type kubelet struct {
	*world
	api  *podapi.Client
	peer netip.Addr
	from *ping.Prober         // the peer's
	late func() time.Duration // from a container's start to status.podIP
}

// BenchmarkReady starts pods with the annotation on, under a default-deny policy agent, with the API server at three distances.
func BenchmarkReady(b *testing.B) {
	record := figures.Record(b, "ready")
	w := boot(b, shape{
		pairs: len(figures.Delays()), instanceType: smallType, quick: true, peer: true,
		settings: map[string]string{"ANNOTATE_POD_IP": "true"},
	})
	w.putAway(figures.Delays())
	w.start()
	pause(b, settle)
	k := w.kubelet()
	for i, p := range w.pairs {
		for _, n := range p.inTurn(i) {
			w.gate(n)
			k.live(n, figures.Delays()[i]) // caches
		}
	}
	pause(b, settle)
	measure := func(n *node, side string, pair, block int) {
		delay := figures.Delays()[pair]
		ready, failed := k.live(n, delay)
		record.Times(figures.By(side, figures.ReadyAfter(delay)), block, ready)
		record.Add(figures.By(side, figures.ReadyFailed(delay)), block, float64(failed))
	}
	for block := range readyBlocks {
		for i, p := range w.pairs {
			for _, n := range p.inTurn(block) {
				measure(n, n.side, i, block)
			}
		}
	}
	// The incumbent's ADD waits for the annotation. Ours does where it is told to.
	for _, p := range w.pairs {
		n := p[figures.Ours]
		check(b, n.Stop())
		n.Set(map[string]string{"ANNOTATE_POD_IP_WAIT": "1s"})
		n.start()
	}
	pause(b, settle)
	for block := range waitBlocks {
		for i, p := range w.pairs {
			measure(p[figures.Ours], figures.OursWaiting, i, block)
		}
	}
}

// putAway puts a proxy that delays by so many milliseconds between the machines of each pair and the API server. They need not
// know: what comes from them is redirected where it arrives.
func (w *world) putAway(delays []int) {
	w.tb.Helper()
	path, server := w.APIServer()
	ns, err := netlab.Open(path)
	check(w.tb, err)
	w.tb.Cleanup(func() { check(w.tb, ns.Close()) })
	at := netip.MustParseAddrPort(server)
	var rules strings.Builder
	for i, p := range w.pairs {
		front := netip.AddrPortFrom(at.Addr(), at.Port()+1+uint16(i))
		w.proxy(ns, front.String(), time.Duration(delays[i])*time.Millisecond)
		for _, n := range p {
			place, err := w.Machine(n.machine)
			check(w.tb, err)
			fmt.Fprintf(&rules, "ip saddr %s tcp dport %d redirect to :%d\n", place.Address, at.Port(), front.Port())
		}
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("table ip distance {\n chain arrive {\n type nat hook prerouting priority dstnat;\n" + rules.String() + "}\n}\n")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	check(w.tb, ns.Start(cmd))
	if err := cmd.Wait(); err != nil {
		w.tb.Fatalf("redirect to proxies: %v: %s", err, output.String())
	}
}

func (w *world) proxy(ns *netlab.Namespace, front string, delay time.Duration) {
	w.tb.Helper()
	_, server := w.APIServer()
	cmd, err := distance.Command(front, server, delay)
	check(w.tb, err)
	listening, err := cmd.StdoutPipe()
	check(w.tb, err)
	check(w.tb, ns.Start(cmd))
	w.tb.Cleanup(func() { check(w.tb, errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())) })
	_, err = bufio.NewReader(listening).ReadString('\n')
	check(w.tb, err)
}

// gate starts the policy agent on a node and waits until it knows the node's pods.
func (w *world) gate(n *node) {
	w.tb.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(netns.BinVar), "policygate"),
		"-node", n.machine, "-kubeconfig", w.UserConfig(account.PolicyGate), "-annotation=true", "-default-deny=true")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	told, err := cmd.StdoutPipe()
	check(w.tb, err)
	check(w.tb, n.Network().Start(cmd))
	ready, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		followed := event.Follow(told, func(e event.Event) {
			if e.Kind == event.Ready {
				ready <- struct{}{} // it comes once
			}
		})
		ended <- errors.Join(followed, cmd.Wait())
	}()
	w.tb.Cleanup(func() { check(w.tb, errors.Join(cmd.Process.Signal(syscall.SIGTERM), <-ended)) })
	select {
	case <-ready:
	case <-time.After(readyTimeout):
		w.tb.Fatalf("policy agent of %s is not ready after %s", n.machine, readyTimeout)
	}
}

func (w *world) kubelet() *kubelet {
	w.tb.Helper()
	peer, err := w.Machine(peerName)
	check(w.tb, err)
	ns, err := netlab.Open(peer.Namespace)
	check(w.tb, err)
	api, err := podapi.New(w.Config())
	check(w.tb, err)
	delay, random := sandbox.KubeletDelay(), rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a seed, no secret
	k := &kubelet{world: w, api: api, peer: peer.Address, from: prober(w.tb, ns), late: func() time.Duration {
		return delay.Min + time.Duration(random.Int64N(int64(delay.Max-delay.Min)))
	}}
	w.tb.Cleanup(func() { check(w.tb, errors.Join(k.from.Close(), ns.Close())) })
	return k
}

func prober(tb testing.TB, ns *netlab.Namespace) *ping.Prober {
	tb.Helper()
	var conn net.PacketConn
	check(tb, ns.Do(func() (err error) {
		conn, err = ping.Listen()
		return err
	}))
	return ping.NewProber(conn)
}

// live runs a pod until it is ping-ready in both directions: how long that took from ADD's exec on, and how many pings failed.
// Its ADD comes when a real kubelet's could: that hears of the pod from as far away as the daemon, and has more to do before.
func (k *kubelet) live(n *node, delay int) (ready time.Duration, failed int) {
	k.tb.Helper()
	ctx, cancel := context.WithTimeout(k.tb.Context(), readyTimeout)
	defer cancel()
	pods := n.make(1)
	p := &pods[0]
	object, err := k.api.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: p.name},
		Spec:       corev1.PodSpec{NodeName: n.machine, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	})
	check(k.tb, err)
	p.uid = string(object.UID)
	own := prober(k.tb, p.ns)
	pause(k.tb, time.Duration(delay)*time.Millisecond+beforeADD)
	began := time.Now()
	c, refused := n.insist(ctx, p) // the incumbent refuses a pod that its own watch has not shown yet
	check(k.tb, c.err)
	if refused > 0 {
		k.tb.Logf("%s: ADD of %s failed %d times before", n.machine, p.name, refused)
	}
	pinging, stop := context.WithCancel(ctx)
	out, in := own.Start(pinging, k.peer, pingInterval), k.from.Start(pinging, c.address, pingInterval)
	k.await(ctx, *p, c.address, out, in)
	stop()
	<-out.Done()
	<-in.Done()
	pause(k.tb, lastReply)
	for _, train := range []*ping.Train{out, in} {
		result := train.Result()
		ready = max(ready, result.FirstReply.Sub(began))
		failed += result.Failed
		train.Forget()
	}
	check(k.tb, own.Close())
	n.each((*node).del, pods)
	n.remove(pods)
	check(k.tb, k.api.Delete(ctx, named(*p), object.UID, new(int64)))
	return ready, failed
}

func named(p pod) types.NamespacedName {
	return types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: p.name}
}

// await waits for the first replies. When the time has come, the pod gets its status, which is what a policy agent learns its
// address from where nothing comes before.
func (k *kubelet) await(ctx context.Context, p pod, address netip.Addr, trains ...*ping.Train) {
	k.tb.Helper()
	status := time.NewTimer(k.late())
	defer status.Stop()
	for _, train := range trains {
		for answered := false; !answered; {
			select {
			case <-train.Answered():
				answered = true
			case <-status.C:
				body := fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address)
				_, err := k.api.Patch(ctx, named(p), "status", podapi.Patch{Type: types.MergePatchType, Body: []byte(body)})
				check(k.tb, err)
			case <-ctx.Done():
				k.tb.Fatalf("pod %s at %s is not ping-ready: %v", p.name, address, ctx.Err())
			}
		}
	}
}
