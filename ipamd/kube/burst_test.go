package kube_test

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
)

// burst is a full node's pods (kubelet's default maximum), all at once.
const burst = 110

// No limiter stands before the requests: what is urgent is never late because of the client. The annotation writer spreads
// what is not.
func TestTheClientLimitsNoRequest(t *testing.T) {
	c, err := kube.New(kube.Config{Kubeconfig: kubeconfig(t), Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Limited() {
		t.Error("the client has a limiter of its own")
	}
}

func kubeconfig(tb testing.TB) string {
	tb.Helper()
	server, err := server()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	if err := server.Kubeconfig(path, "burst", kubetest.AdminGroup); err != nil {
		tb.Fatal(err)
	}
	return path
}

// called marks when a request was asked for.
type called struct{}

// BenchmarkBurst patches 110 pods at once on a real API server and tells what the client itself adds: the time from the call to
// the moment when the request goes to its connection (limiter, encoding), the longest of each burst.
func BenchmarkBurst(b *testing.B) {
	var mu sync.Mutex
	var waits []time.Duration
	c, err := kube.New(kube.Config{Kubeconfig: kubeconfig(b), Node: "node-1", Wrap: func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if at, ok := r.Context().Value(called{}).(time.Time); ok {
				mu.Lock()
				waits = append(waits, time.Since(at))
				mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	}})
	if err != nil {
		b.Fatal(err)
	}
	var longest []time.Duration
	once := func() {
		waits = nil
		var running sync.WaitGroup
		for range burst {
			running.Go(func() {
				ctx := context.WithValue(context.Background(), called{}, time.Now())
				_, _ = c.Patch(ctx, "default", "nobody", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
			})
		}
		running.Wait()
		if len(waits) != burst {
			b.Fatalf("%d requests", len(waits))
		}
	}
	once() // the connections
	for b.Loop() {
		once()
		longest = append(longest, slices.Max(waits))
	}
	slices.Sort(longest)
	b.ReportMetric(float64(longest[len(longest)/2].Microseconds())/1000, "ms-p50-of-longest-wait")
	b.ReportMetric(float64(longest[len(longest)-1].Microseconds())/1000, "ms-longest-wait")
}
