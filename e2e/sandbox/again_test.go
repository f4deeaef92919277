package sandbox_test

import (
	"context"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
)

// A sandbox that dies is replaced under the same UID; the old one's DEL comes before the new one's ADD, or after it.
func TestASandboxIsReplacedUnderTheSameUID(t *testing.T) {
	for order, want := range map[sandbox.Order][]string{
		sandbox.RestartBox: {"ADD old", "DEL old", "ADD new"},
		sandbox.OverlapBox: {"ADD old", "ADD new", "DEL old"},
	} {
		t.Run(string(order), func(t *testing.T) {
			r := newRig(t)
			r.network()
			r.start()
			socket := r.path("control")
			listener, err := net.Listen("unix", socket)
			check(t, err)
			ctx, stop := context.WithCancel(context.Background())
			served := make(chan error, 1)
			go func() { served <- r.agent.Serve(ctx, listener) }()
			defer func() {
				stop()
				check(t, <-served)
			}()
			r.api.create(newPod("web", "u1"))
			old := r.expect(event.ContainerStarted, "u1").Sandbox
			check(t, sandbox.Ask(ctx, socket, order, "u1"))
			r.expect(event.ContainerStopped, "u1")
			next := r.expect(event.ContainerStarted, "u1").Sandbox
			names := map[string]string{old: "old", next: "new"}
			var got []string
			for _, c := range r.calls() {
				got = append(got, c.Command+" "+names[c.ID])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// A Job's pod loses its sandbox, then says that it has succeeded, and stays until it is deleted.
func TestAPodThatFinishesStaysWithoutASandbox(t *testing.T) {
	r := newRig(t)
	r.network()
	r.start()
	pod := newPod("job", "u1")
	pod.Annotations = map[string]string{sandbox.RunTimeKey: "1ms"}
	r.api.create(pod)
	r.expect(event.ContainerStopped, "u1")
	r.expect(event.DelDone, "u1")
	for phase := corev1.PodPhase(""); phase != corev1.PodSucceeded; {
		r.api.mu.Lock()
		phase = r.api.posted["u1"].Phase
		r.api.mu.Unlock()
	}
	r.api.remove(pod)
	r.expect(event.PodGone, "u1")
}
