package annotation_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/vpc-cni/vpc-cni/e2e/suites/harness"
)

// soon is how long the daemon may take to bring the API to what it wants: a pass over a node's pods is limited to ten
// requests a second, and a spec has one or two pods.
const soon = 15 * time.Second

var _ = Describe("with the knob on", Label("annotation"), Ordered, func() {
	BeforeAll(func(ctx context.Context) { turn(ctx, true) })

	It("writes the address on ADD, before the kubelet reports it", func(ctx context.Context) {
		pod, address := start(ctx, 0, "written", harness.Unreported)
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
		now, err := shared.API.Get(ctx, pod.Namespace, pod.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(now.Status.PodIP).To(BeEmpty(), "the kubelet reported after all: the spec shows nothing")
	})

	It("clears the value on DEL", func(ctx context.Context) {
		pod, address := start(ctx, 0, "cleared", harness.Kept)
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
		Expect(shared.Delete(ctx, pod, false)).To(Succeed())
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(BeEmpty())
	})

	It("never annotates a hostNetwork pod", func(ctx context.Context) {
		pod, _ := start(ctx, 0, "host", harness.HostNetwork)
		Consistently(hold(ctx, pod)).WithTimeout(harness.Steady).Should(Equal(absent))
	})
})

var _ = Describe("with the knob off", Label("annotation"), Ordered, func() {
	BeforeAll(func(ctx context.Context) { turn(ctx, false) })

	It("never gives a key to a pod, not even an empty one on DEL", func(ctx context.Context) {
		events, stop := shared.Events()
		defer stop()
		pod, _ := start(ctx, 0, "bare", harness.Kept)
		Expect(hold(ctx, pod)(Default)).To(Equal(absent))
		Expect(shared.Delete(ctx, pod, false)).To(Succeed())
		Expect(shared.Gone(ctx, events, pod)).To(Succeed())
		Consistently(hold(ctx, pod)).WithTimeout(harness.Steady).Should(Equal(absent))
	})
})

var _ = Describe("when the knob is turned", Label("annotation"), func() {
	It("removes the key from running pods when it goes off, and backfills it when it goes on", func(ctx context.Context) {
		turn(ctx, true)
		pod, address := start(ctx, 0, "turned")
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
		Eventually(reported(ctx, pod)).WithTimeout(soon).Should(Equal(address))
		turn(ctx, false)
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(absent))
		Expect(reported(ctx, pod)(Default)).To(Equal(address))
		turn(ctx, true)
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
	})

	It("backfills pods that were started while it was off", func(ctx context.Context) {
		turn(ctx, false)
		pod, address := start(ctx, 1, "before")
		Expect(hold(ctx, pod)(Default)).To(Equal(absent))
		turn(ctx, true)
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
	})

	It("leaves the key where the status has no address yet, and still clears it on DEL", Label("status-delay"), func(ctx context.Context) {
		turn(ctx, true)
		pod, address := start(ctx, 0, "late-report", harness.Unreported, harness.Kept)
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(Equal(address))
		turn(ctx, false)
		Consistently(hold(ctx, pod)).WithTimeout(harness.Steady).Should(Equal(address))
		Expect(shared.Delete(ctx, pod, false)).To(Succeed())
		Eventually(hold(ctx, pod)).WithTimeout(soon).Should(BeEmpty())
	})
})
