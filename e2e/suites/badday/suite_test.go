// Package badday_test is the bad day: a seeded mixture of all that happens to pods and their API, on a whole cluster, under a
// ledger of what readers believed. `make e2e LABELS=badday SEED=n` runs it with 200 pods; `make test` runs a short one.
//
// The suite plays the controllers: what it deletes of a StatefulSet it makes again under the same name. Start with the spec
// in day_test.go; steps_test.go has what goes wrong, quiet_test.go what must be right whenever it is quiet.
package badday_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/vpc-cni/vpc-cni/e2e/policygate"
	"github.com/vpc-cni/vpc-cni/e2e/suites/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestBadDay(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "bad day")
}

// What the environment may say.
const (
	seedVar = "BADDAY_SEED"
	podsVar = "BADDAY_PODS"
)

// fewPods are those of the short form, below which all is done once; with more every step is done several times.
const fewPods = 24

// number reads a variable.
func number(name string, unset uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(name), 10, 32)
	if err != nil {
		return unset
	}
	return n
}

// The keys that the day's daemons write, one or both.
const (
	awsKey   = policygate.AWSPodIPs
	otherKey = "cni.example.com/pod-ip"
)

// size is a day's size: the nodes have some addresses more than it needs, so that addresses are soon used again.
type size struct {
	pods         int
	instanceType string
	settings     map[string]string
	capacity     int // of a node
}

func sizeOf(pods int) size {
	s := size{pods: pods, instanceType: "m5.large", settings: map[string]string{"MAX_ENI": "2"}, capacity: 18}
	if pods > fewPods {
		s.instanceType = "m5.4xlarge"
		s.settings, s.capacity = map[string]string{"MAX_ENI": "4"}, 116
	}
	s.settings["MINIMUM_IP_TARGET"] = strconv.Itoa(s.capacity)
	s.settings["IP_COOLDOWN_PERIOD"] = "1"
	s.settings["ANNOTATE_POD_IP"] = "true"
	return s
}

var _ = Describe("a bad day", Label("badday"), func() {
	It("leaves every pod's keys right, and no reader wrong by them", func(ctx context.Context) {
		seed, pods := number(seedVar, 1), int(number(podsVar, fewPods))
		size := sizeOf(pods)
		shared, err := harness.Boot(ctx, "badday", harness.Options{
			Settings: size.settings, InstanceType: size.instanceType, Keys: awsKey + "," + otherKey, Seed: seed, BadDay: true,
		}, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) { Expect(shared.Stop(ctx)).To(Succeed()) })
		d := newDay(shared, seed, pods)
		if err := d.live(ctx); err != nil {
			Fail(err.Error() + "\n" + d.replay())
		}
		Expect(shared.RemoveLogs()).To(Succeed())
	})
})
