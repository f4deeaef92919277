package eksnode_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/eksnode"
	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// world is a cluster with nodes of the incumbent's.
type world struct {
	*netns.Cluster
	t    *testing.T
	eks  *eksnode.Cluster
	logs string
	told *facts

	expected  string          // code with which EC2 refuses something here
	attaching *sync.WaitGroup // cases that still attach ENIs
	settle    func()          // of a case that does: it will attach no more
}

// facts are what the cases have seen, to be shown case by case: they run side by side.
type facts struct {
	mu    sync.Mutex
	cases []string // in the order in which they are shown
	lines map[string][]string
}

// say tells what was seen.
func (w *world) say(format string, args ...any) {
	w.t.Helper()
	w.t.Logf(format, args...)
	w.told.mu.Lock()
	defer w.told.mu.Unlock()
	_, name, _ := strings.Cut(w.t.Name(), "/")
	w.told.lines[name] = append(w.told.lines[name], fmt.Sprintf(format, args...))
}

// show prints all of it.
func (f *facts) show(t *testing.T) {
	var out strings.Builder
	fmt.Fprintf(&out, "\n  what the incumbent does:\n")
	for _, name := range f.cases {
		if len(f.lines[name]) == 0 {
			continue // not run
		}
		fmt.Fprintf(&out, "    %s\n", name)
		for _, line := range f.lines[name] {
			fmt.Fprintf(&out, "      - %s\n", line)
		}
	}
	_, _ = fmt.Fprintln(t.Output(), out.String()) // the test log takes every write
}

// boot boots machines of these instance types; the i-th is machine(i).
func boot(t *testing.T, instanceTypes ...string) *world {
	t.Helper()
	return bootWith(t, nil, instanceTypes...)
}

// bootWith is boot with lags of the VPC's views.
func bootWith(t *testing.T, lags map[string]string, instanceTypes ...string) *world {
	t.Helper()
	var machines []netns.Machine
	for i, of := range instanceTypes {
		machines = append(machines, netns.Machine{Name: machine(i), InstanceType: of})
	}
	logs := filepath.Join(cmp.Or(os.Getenv(logsVar), t.TempDir()), t.Name())
	c, err := netns.Start(t.Context(), netns.Options{Logs: logs, Machines: machines, Lags: lags, Out: t.Output()})
	check(t, err)
	t.Cleanup(func() { check(t, c.Stop(context.Background())) })
	eks, err := eksnode.Join(t.Context(), c)
	check(t, err)
	told := &facts{lines: map[string][]string{}}
	w := &world{Cluster: c, t: t, eks: eks, logs: logs, told: told, attaching: &sync.WaitGroup{}}
	t.Cleanup(func() { // after the cases, which are parallel
		told.show(t)
		w.refusals()
	})
	return w
}

// refusals fails for every request that EC2 refused, but for what a case expects, for throttling, which is a fault, and for
// deletes while EC2 still detaches: what the incumbent asks, real EC2 grants.
func (w *world) refusals() {
	all, err := w.Journal(context.Background(), 0)
	check(w.t, err)
	actions := map[string]int{}
	for _, r := range all {
		actions[r.Action]++
		detaching := r.Action == "DeleteNetworkInterface" && r.Code == "InvalidParameterValue" // it waits two seconds before it deletes
		if r.Code != "" && r.Code != "RequestLimitExceeded" && r.Code != w.expected && !detaching {
			w.t.Errorf("EC2 refuses %s %v: %s", r.Action, r.Params, r.Code)
		}
	}
	w.t.Logf("%d EC2 requests: %v", len(all), actions)
}

// logsVar names a folder in which the logs stay.
const logsVar = "INCUMBENT_LOGS"

func machine(i int) string { return "eks-" + string(rune('a'+i)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try runs a case as a subtest, side by side with the others. The delays of the VPC are everybody's: a case that attaches ENIs says
// so, and one that changes delays waits (settled) for the end of those.
func (w *world) try(name string, attaches bool, run func(*world)) {
	w.told.cases = append(w.told.cases, name)
	w.t.Run(name, func(t *testing.T) {
		c := w.of(t)
		if attaches {
			w.attaching.Add(1)
			c.settle = sync.OnceFunc(w.attaching.Done)
			t.Cleanup(c.settle)
		}
		t.Parallel()
		run(c)
	})
}

// of is the world for a subtest.
func (w *world) of(t *testing.T) *world {
	return &world{Cluster: w.Cluster, t: t, eks: w.eks, logs: w.logs, told: w.told, attaching: w.attaching}
}

// node is a node under test.
type node struct {
	*eksnode.Node
	w    *world
	made int // pods
}

// node makes a node of the i-th machine. Its agent is not started.
func (w *world) node(i int, settings map[string]string) *node {
	w.t.Helper()
	n, err := w.eks.Node(w.t.Context(), eksnode.Options{Machine: machine(i), Logs: filepath.Join(w.logs, machine(i)), Settings: settings})
	check(w.t, err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the end of the agent's log on %s:\n%s", n.Name(), n.Tail())
		}
		check(w.t, n.Close())
	})
	return &node{Node: n, w: w}
}

// start starts the agent and waits until its probe passes.
func (n *node) start() {
	n.w.t.Helper()
	check(n.w.t, n.Start(n.w.t.Context()))
}

// pod is a pod of a node.
type pod struct {
	*eksnode.Sandbox
	node    *node
	addr    netip.Addr
	refused int // ADDs before the one that was served
	removed bool
}

// sandbox makes a pod's namespace. The API server knows no such pod.
func (n *node) sandbox() *pod {
	n.w.t.Helper()
	n.made++
	s, err := n.Sandbox(types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("%s-%d", n.Name(), n.made)}, types.UID(fmt.Sprint("uid-", n.made)))
	check(n.w.t, err)
	p := &pod{Sandbox: s, node: n}
	n.w.t.Cleanup(p.remove)
	return p
}

// remove lets the pod's namespace go, as the runtime does after DEL.
func (p *pod) remove() {
	p.node.w.t.Helper()
	if !p.removed {
		check(p.node.w.t, p.Remove())
	}
	p.removed = true
}

// patience is how long the incumbent may take for something that takes it seconds on an idle machine; a minute where its own
// timers are minutes.
const patience = 2 * time.Minute

// poll is how often something is looked at that is waited for.
const poll = 200 * time.Millisecond

// eventually waits until f has nothing to say.
func (w *world) eventually(what string, f func() error) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		select {
		case <-w.t.Context().Done():
			w.t.Fatalf("%s: %v", what, err)
		case <-time.After(poll):
		}
	}
}

// add connects a new pod, again and again where it is refused, as kubelet does.
func (n *node) add() *pod {
	n.w.t.Helper()
	p := n.sandbox()
	n.w.eventually("ADD of "+p.Name, func() (err error) {
		if p.addr, err = p.Add(n.w.t.Context()); err != nil {
			p.refused++
			check(n.w.t, p.Del(n.w.t.Context())) // as a runtime does after a failed ADD
		}
		return err
	})
	return p
}

func (n *node) addMany(count int) (pods []*pod) {
	n.w.t.Helper()
	for range count {
		pods = append(pods, n.add())
	}
	return pods
}

func (p *pod) del() {
	p.node.w.t.Helper()
	check(p.node.w.t, p.Del(p.node.w.t.Context()))
}

// enis are the node's ENIs as EC2 has them.
func (n *node) enis() []vpc.ENI {
	n.w.t.Helper()
	state, err := n.w.State(n.w.t.Context())
	check(n.w.t, err)
	i, err := state.Instance(n.Name())
	check(n.w.t, err)
	return state.Attached(i.ID)
}

// device is the device number of the ENI that holds the pod's address.
func (p *pod) device() int {
	p.node.w.t.Helper()
	for _, e := range p.node.enis() {
		if e.Holds(p.addr) {
			return e.Attachment.Device
		}
	}
	p.node.w.t.Fatalf("no ENI of %s holds %s, the address of %s", p.node.Name(), p.addr, p.Name)
	return -1
}

// How long an answer is waited for: one that is to come, and one that is not.
const (
	answerWithin = 20 * time.Second
	silence      = 3 * time.Second
)

// answers tells whether an address answers pings from a namespace.
func (w *world) answers(from *netlab.Namespace, to netip.Addr) bool {
	w.t.Helper()
	return w.answersWithin(answerWithin, from, to)
}

func (w *world) answersWithin(within time.Duration, from *netlab.Namespace, to netip.Addr) bool {
	w.t.Helper()
	var conn net.PacketConn
	check(w.t, from.Do(func() (err error) {
		conn, err = ping.Listen()
		return err
	}))
	prober := ping.NewProber(conn)
	defer func() { check(w.t, prober.Close()) }()
	const every = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	train := prober.Start(ctx, to, every)
	defer func() { <-train.Done() }()
	select {
	case <-train.Answered():
		cancel()
		return true
	case <-train.Done():
		return false
	}
}

// seenAs connects from a namespace to a port of another and gives the source address that arrives there.
func (w *world) seenAs(from *netlab.Namespace, to *netlab.Namespace, addr netip.Addr) netip.Addr {
	w.t.Helper()
	const port = 8080
	at := netip.AddrPortFrom(addr, port).String()
	listener, err := to.Listen(w.t.Context(), "tcp4", at)
	check(w.t, err)
	defer func() { _ = listener.Close() }() // nothing is written
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp4", at)
	check(w.t, err)
	defer func() { _ = conn.Close() }() // nothing is written
	accepted, err := listener.Accept()
	check(w.t, err)
	defer func() { _ = accepted.Close() }() // nothing is written
	source, err := netip.ParseAddrPort(accepted.RemoteAddr().String())
	check(w.t, err)
	return source.Addr().Unmap()
}

// outside opens the host in the internet.
func (w *world) outside() (*netlab.Namespace, netip.Addr) {
	w.t.Helper()
	place := w.Internet()
	ns, err := netlab.Open(place.Namespace)
	check(w.t, err)
	w.t.Cleanup(func() { check(w.t, ns.Close()) })
	return ns, place.Address
}

// get reads a page of the agent's.
func (n *node) get(url string) []byte {
	n.w.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: n.Network().DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(n.w.t.Context(), http.MethodGet, url, nil)
	check(n.w.t, err)
	response, err := client.Do(request)
	check(n.w.t, err)
	defer func() { _ = response.Body.Close() }() // read only
	text, err := io.ReadAll(response.Body)
	check(n.w.t, err)
	return text
}

// pool is the agent's own account of its addresses.
func (n *node) pool() (enis, total, assigned int) {
	n.w.t.Helper()
	var cards map[string]struct {
		TotalIPs, AssignedIPs int
		ENIs                  map[string]any
	}
	check(n.w.t, json.Unmarshal(n.get("http://127.0.0.1:61679/v1/enis"), &cards))
	card := cards["0"]
	return len(card.ENIs), card.TotalIPs, card.AssignedIPs
}
