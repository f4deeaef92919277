// Package bench_test measures ADD as a container runtime sees it: the real plugin, exec'd through libcni, against the real
// daemon on a simulated node with room for all pods. Run it with
//
//	go test -run '^$' -bench . -benchtime 1x ./e2e/bench
package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) {
	if err := netns.Prepare(context.Background(), os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
	netlab.Main(m)
}

// What is measured: the figures that the project promises to print.
const (
	sequential = 200
	parallel   = 110 // a full node by Kubernetes' usual limit
)

// node is a node on which pods are made without Kubernetes.
type node struct {
	b       *testing.B
	api     *podapi.Client
	ns      *netlab.Namespace
	config  *libcni.CNIConfig
	network *libcni.NetworkConfigList
	pods    string
	next    int
}

// pod is one sandbox.
type pod struct {
	ns   *netlab.Namespace
	conf *libcni.RuntimeConf
}

// boot boots a node that holds an address for every pod of a benchmark from the start.
func boot(b *testing.B, pods int, annotate bool) *node {
	b.Helper()
	logs := filepath.Join(b.TempDir(), "logs")
	c, err := netns.Start(b.Context(), netns.Options{
		Logs: logs, Nodes: 1, InstanceType: "m5.24xlarge", Out: b.Output(),
		Settings: map[string]string{"MINIMUM_IP_TARGET": strconv.Itoa(pods), "ANNOTATE_POD_IP": strconv.FormatBool(annotate)},
		Policy:   cluster.Policy{Annotation: true, DefaultDeny: true},
	})
	check(b, err)
	b.Cleanup(func() { check(b, c.Stop(context.Background())) })
	place := c.Places(c.Info().Nodes[0].Name)
	network, err := libcni.NetworkConfFromFile(filepath.Join(place.ConfDir, "10-aws.conflist"))
	check(b, err)
	ns, err := netlab.Open(place.Namespace)
	check(b, err)
	b.Cleanup(func() { check(b, ns.Close()) })
	client, err := podapi.New(c.Config())
	check(b, err)
	dir := b.TempDir()
	return &node{
		b: b, api: client, ns: ns, network: network, pods: dir,
		config: libcni.NewCNIConfigWithCacheDir([]string{place.BinDir}, filepath.Join(dir, "cache"), nil),
	}
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// make makes the namespaces of pods and their API objects; that is the runtime's work and the user's, not the plugin's. The
// objects are bound to a node that is not there, so that no kubelet takes them up.
func (n *node) make(count int) (pods []pod) {
	n.b.Helper()
	for range count {
		n.next++
		name := "pod-" + strconv.Itoa(n.next)
		ns, err := netlab.New(filepath.Join(n.pods, name))
		check(n.b, err)
		object, err := n.api.Create(n.b.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
			Spec:       corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		})
		check(n.b, err)
		pods = append(pods, pod{ns: ns, conf: &libcni.RuntimeConf{
			ContainerID: fmt.Sprintf("%064d", n.next), NetNS: ns.Path(), IfName: "eth0",
			Args: [][2]string{
				{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", object.Namespace}, {"K8S_POD_NAME", name},
				{"K8S_POD_INFRA_CONTAINER_ID", fmt.Sprintf("%064d", n.next)}, {"K8S_POD_UID", string(object.UID)},
			},
		}})
	}
	return pods
}

// add runs ADD in the node's namespace and says how long it took.
func (n *node) add(p pod) (took time.Duration, err error) {
	err = n.ns.Do(func() error {
		began := time.Now()
		_, err := n.config.AddNetworkList(context.Background(), n.network, p.conf)
		took = time.Since(began)
		return err
	})
	return took, err
}

// remove runs DEL for all pods and removes their namespaces.
func (n *node) remove(pods []pod) {
	n.b.Helper()
	for _, p := range pods {
		err := n.ns.Do(func() error { return n.config.DelNetworkList(context.Background(), n.network, p.conf) })
		check(n.b, errors.Join(err, p.ns.Close()))
	}
}

func BenchmarkSequentialADD(b *testing.B) {
	n := boot(b, sequential, false)
	for b.Loop() {
		b.StopTimer()
		pods := n.make(sequential)
		b.StartTimer()
		var times []time.Duration
		for _, p := range pods {
			took, err := n.add(p)
			check(b, err)
			times = append(times, took)
		}
		b.StopTimer()
		slices.Sort(times)
		b.ReportMetric(milliseconds(times[len(times)/2]), "p50-ms/ADD")
		b.ReportMetric(milliseconds(times[len(times)*9/10]), "p90-ms/ADD")
		b.ReportMetric(milliseconds(times[0]), "min-ms/ADD")
		n.remove(pods)
		b.StartTimer()
	}
}

func BenchmarkParallelADD(b *testing.B)          { parallelADD(b, false) }
func BenchmarkParallelADDAnnotated(b *testing.B) { parallelADD(b, true) }

func parallelADD(b *testing.B, annotate bool) {
	n := boot(b, parallel, annotate)
	for b.Loop() {
		b.StopTimer()
		pods := n.make(parallel)
		b.StartTimer()
		began := time.Now()
		errs := make([]error, len(pods))
		var done sync.WaitGroup
		for i, p := range pods {
			done.Go(func() { _, errs[i] = n.add(p) })
		}
		done.Wait()
		b.ReportMetric(milliseconds(time.Since(began)), "ms/"+strconv.Itoa(parallel)+"-ADDs")
		b.StopTimer()
		check(b, errors.Join(errs...))
		n.remove(pods)
		b.StartTimer()
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
