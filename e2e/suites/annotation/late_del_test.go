package annotation_test

import (
	"context"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/e2e/suites/harness"
)

// reported is what the pod's status says of its address.
func reported(ctx context.Context, pod *corev1.Pod) func(Gomega) string {
	return func(g Gomega) string {
		now, err := shared.API.Get(ctx, pod.Namespace, pod.Name)
		g.Expect(err).NotTo(HaveOccurred())
		return now.Status.PodIP
	}
}

var _ = Describe("a late DEL of an earlier sandbox of the same StatefulSet pod name", Label("annotation", "late-del"), func() {
	It("touches neither the new pod's annotation nor its traffic", func(ctx context.Context) {
		turn(ctx, true)
		events, stop := shared.Events()
		defer stop()
		watcher, watcherAddress := start(ctx, 1, "watcher")
		Eventually(reported(ctx, watcher)).WithTimeout(soon).Should(Equal(watcherAddress))

		old, oldAddress := start(ctx, 0, "db-0")
		Eventually(hold(ctx, old)).WithTimeout(soon).Should(Equal(oldAddress))
		Expect(shared.Order(ctx, old.Spec.NodeName, sandbox.HoldDEL, old.UID)).To(Succeed())
		Expect(shared.Delete(ctx, old, true)).To(Succeed())

		pod, address := start(ctx, 0, "db-0")
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
		train, stopPings := pings(ctx, watcher, address)
		Eventually(train.Answered()).WithTimeout(soon).Should(BeClosed())
		before, answered := train.Result(), time.Now()

		By("sending the held DEL now, after the new sandbox's ADD")
		Expect(shared.Order(ctx, old.Spec.NodeName, sandbox.ReleaseDEL, old.UID)).To(Succeed())
		Expect(shared.Gone(ctx, events, old)).To(Succeed())
		Consistently(hold(ctx, pod)).WithTimeout(harness.Steady).Should(Equal(address))

		By("sending it once more, when the sandbox's namespace is long gone")
		Expect(shared.Order(ctx, old.Spec.NodeName, sandbox.ReplayDEL, old.UID)).To(Succeed())
		Consistently(hold(ctx, pod)).WithTimeout(harness.Steady).Should(Equal(address))

		stopPings()
		unbroken := func() bool { after := train.Result(); return after.LastFailure.Before(answered) } // the last answers may be on their way
		Eventually(unbroken).WithTimeout(time.Second).Should(BeTrue(), "pings were lost: %+v", train.Result())
		Expect(train.Result().Sent).To(BeNumerically(">", before.Sent+100), "too few pings to show anything")
	})

	It("gives the address back only once", func(ctx context.Context) {
		turn(ctx, true)
		events, stop := shared.Events()
		defer stop()
		old, oldAddress := start(ctx, 0, "db-1")
		Expect(shared.Delete(ctx, old, false)).To(Succeed())
		Expect(shared.Gone(ctx, events, old)).To(Succeed())
		pod, address := start(ctx, 0, "db-1")
		Expect(address).NotTo(Equal(oldAddress), "an address was used again within its cooldown")
		Expect(shared.Order(ctx, old.Spec.NodeName, sandbox.ReplayDEL, old.UID)).To(Succeed())
		Consistently(hold(ctx, pod)).WithTimeout(harness.Steady).Should(Or(Equal(address), Equal(absent)))
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
	})
})

// pings pings an address from a pod every 10 ms until it is stopped, at the end of the spec at the latest.
func pings(ctx context.Context, from *corev1.Pod, to string) (train *ping.Train, stop func()) {
	GinkgoHelper()
	conn, err := shared.Ping(harness.At(from))
	Expect(err).NotTo(HaveOccurred())
	prober := ping.NewProber(conn)
	ctx, cancel := context.WithCancel(ctx)
	train = prober.Start(ctx, netip.MustParseAddr(to), 10*time.Millisecond)
	stop = func() {
		cancel()
		<-train.Done()
	}
	DeferCleanup(func() {
		stop()
		Expect(prober.Close()).To(Succeed())
	})
	return train, stop
}
