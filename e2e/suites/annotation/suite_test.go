// Package annotation_test is the end-to-end suite of the pod-IP annotation (see the README), and
// the field's cases behind it.
package annotation_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
	"github.com/vpc-cni/vpc-cni/e2e/suites/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestAnnotation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "pod-IP annotation")
}

// key is the annotation that the daemons are told to write.
const key = policygate.AWSPodIPs

// shared is the suite's one cluster.
var shared *harness.Cluster

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	shared, err = harness.Boot(ctx, "annotation", harness.Options{Settings: map[string]string{
		"MINIMUM_IP_TARGET": "14", // one ENI's addresses: no spec needs more, and none waits for EC2
		"ANNOTATE_POD_IP":   "true",
	}}, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(shared.Stop(ctx)).To(Succeed()) })
})

var _ = ReportAfterSuite("logs", func(r Report) {
	if shared != nil && r.SuiteSucceeded {
		Expect(shared.RemoveLogs()).To(Succeed())
	}
})

// turn restarts the daemons with the annotation on or off, and leaves other keys behind.
func turn(ctx context.Context, on bool) {
	GinkgoHelper()
	value := "false"
	if on {
		value = "true"
	}
	Expect(shared.Reconfigure(ctx, map[string]string{"ANNOTATE_POD_IP": value, "ANNOTATE_POD_IP_KEYS": cluster.Unset})).To(Succeed())
}

// start starts a pod that is removed at the end of the spec.
func start(ctx context.Context, node int, name string, options ...harness.Option) (*corev1.Pod, string) {
	GinkgoHelper()
	pod, address, err := shared.Start(ctx, node, name, options...)
	Expect(err).NotTo(HaveOccurred())
	removeLater(pod)
	return pod, address
}

// removeLater removes a pod at the end of the spec, however it stands then.
func removeLater(pod *corev1.Pod) {
	DeferCleanup(func(ctx context.Context) {
		_ = shared.Delete(ctx, pod, false) // it may be gone already, or be replaced
		now, err := shared.API.Get(ctx, pod.Namespace, pod.Name)
		if err == nil && now.UID == pod.UID {
			Expect(shared.LetGo(ctx, pod)).To(Succeed())
		}
		Eventually(func(g Gomega) {
			now, err := shared.API.Get(ctx, pod.Namespace, pod.Name)
			g.Expect(err != nil || now.UID != pod.UID).To(BeTrue(), "the pod is still there")
		}).WithTimeout(harness.StartTimeout).Should(Succeed())
	})
}

// hold is what the key of a pod holds: its value, or "<absent>".
func hold(ctx context.Context, pod *corev1.Pod) func(Gomega) string {
	return func(g Gomega) string {
		value, present, err := shared.Annotation(ctx, pod, key)
		g.Expect(err).NotTo(HaveOccurred())
		if !present {
			return absent
		}
		return value
	}
}

const absent = "<absent>"
