// Package pingready_test proves that the ping-ready comparison measures what it says: losses with the annotation off come
// from the kubelet's late status and the default-deny policy, and from nothing else.
package pingready_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/pingready"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/e2e/suites/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestPingReady(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "ping-ready comparison")
}

// delay of the kubelet's status. It is fixed, so that a loss can be told from its cause, and long beside anything else here.
const delay = 2 * time.Second

// most is what a pod may take without waiting for the status. It is far from delay, not near to what is usual: these specs
// tell causes apart, also on a busy machine. How fast it is, the demo shows.
const most = delay / 2

var shared *harness.Cluster

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	shared, err = harness.Boot(ctx, "pingready", harness.Options{
		Settings:    map[string]string{"MINIMUM_IP_TARGET": "14"}, // one ENI's addresses: no spec needs more, and none waits for EC2
		StatusDelay: &sandbox.Delay{Min: delay, Max: delay},
	}, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(shared.Stop(ctx)).To(Succeed()) })
})

var _ = ReportAfterSuite("logs", func(r Report) {
	if shared != nil && r.SuiteSucceeded {
		Expect(shared.RemoveLogs()).To(Succeed())
	}
})

// measure makes one round and gives its pods.
func measure(ctx context.Context, knob pingready.Knob, policy cluster.Policy) []pingready.Pod {
	GinkgoHelper()
	Expect(shared.SetPolicy(ctx, policy)).To(Succeed())
	report, err := pingready.Run(ctx, shared, pingready.Options{
		Pods: 4, Rounds: []pingready.Knob{knob}, Key: policygate.AWSPodIPs,
		Cooldown: 30 * time.Second, Seed: uint64(GinkgoRandomSeed()), Out: GinkgoWriter,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(report.Rounds).To(HaveLen(1))
	return report.Rounds[0].Pods
}

// waited expects that each pod could not be pinged, nor ping, until its status was there, and lost what it sent meanwhile.
func waited(pods []pingready.Pod) {
	GinkgoHelper()
	for _, pod := range pods {
		for _, ready := range []*float64{pod.PingReadyIn, pod.PingReadyOut} {
			Expect(*ready).To(BeNumerically(">=", ms(delay)), pod.Name)
		}
		Expect(*pod.PolicyProgrammed).To(BeNumerically(">=", *pod.ContainerStart+ms(delay)), pod.Name)
		// One ping every 10 ms: half of them, for a sender that is held back on a busy machine.
		enough := int(delay/(10*time.Millisecond)) / 2
		Expect(pod.FailedPingsIn).To(BeNumerically(">=", enough), pod.Name)
		Expect(pod.FailedPingsOut).To(BeNumerically(">=", enough), pod.Name)
	}
}

func ms(d time.Duration) float64 { return float64(d.Milliseconds()) }

var _ = Describe("a new pod under default deny", Label("pingready"), func() {
	It("waits for the kubelet's status with the annotation off", func(ctx context.Context) {
		pods := measure(ctx, pingready.Off, cluster.Policy{Annotation: true, DefaultDeny: true})
		waited(pods)
		for _, pod := range pods {
			Expect(pod.AnnotationVisible).To(BeNil(), pod.Name)
		}
	})

	It("does not wait with the annotation on", func(ctx context.Context) {
		for _, pod := range measure(ctx, pingready.On, cluster.Policy{Annotation: true, DefaultDeny: true}) {
			for _, ready := range []*float64{pod.PingReadyIn, pod.PingReadyOut} {
				Expect(*ready).To(BeNumerically("<", ms(most)), pod.Name)
			}
			Expect(pod.AnnotationVisible).NotTo(BeNil(), pod.Name)
			Expect(*pod.StatusVisible).To(BeNumerically(">=", *pod.ContainerStart+ms(delay)), pod.Name)
		}
	})

	It("waits with the annotation on when the policy agent does not read it", func(ctx context.Context) {
		pods := measure(ctx, pingready.On, cluster.Policy{Annotation: false, DefaultDeny: true})
		waited(pods)
		for _, pod := range pods {
			Expect(pod.AnnotationVisible).NotTo(BeNil(), pod.Name)
		}
	})

	It("loses nothing with the annotation off when the policy agent denies nothing", func(ctx context.Context) {
		for _, pod := range measure(ctx, pingready.Off, cluster.Policy{Annotation: true, DefaultDeny: false}) {
			Expect(pod.FailedPings()).To(BeZero(), pod.Name)
			Expect(*pod.PingReady()).To(BeNumerically("<", ms(most)), pod.Name)
		}
	})
})
