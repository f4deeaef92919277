package annotate_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// A StatefulSet's pod is deleted and made anew on the same node; the old sandbox's DEL comes after the new one's ADD, twice.
func TestA1LateDelOfOldSandbox(t *testing.T) {
	c := newCluster(t, setting{})
	old := c.pod("p-0", nil)
	c.submitted(record(old, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.kill(old)
	c.pod("p-0", nil)
	young := c.read("p-0")
	c.submitted(record(young, "s2", "10.0.0.2", pool.WishPresent), "present done ok")
	before := c.read("p-0").ResourceVersion
	for range 2 {
		c.submitted(record(old, "s1", "10.0.0.1", pool.WishEmpty), "empty gone uid")
	}
	c.holds("p-0", key, "10.0.0.2")
	if after := c.read("p-0").ResourceVersion; after != before {
		t.Error("the new pod was changed")
	}
	c.quiet()
}

// The same with 50 pods that roll at once, their DELs before, between and after the ADDs.
func TestA2FiftyPodsRollAtOnce(t *testing.T) {
	const count = 50
	c := newCluster(t, setting{})
	old, young := map[int]*corev1.Pod{}, map[int]*corev1.Pod{}
	oldAddr := func(i int) string { return fmt.Sprint("10.0.0.", i+1) }
	newAddr := func(i int) string { return fmt.Sprint("10.0.1.", i+1) }
	for i := range count {
		old[i] = c.pod(fmt.Sprint("p-", i), nil)
		c.writer.Submit(record(old[i], "old", oldAddr(i), pool.WishPresent))
	}
	for range count {
		c.expect("present done ok")
	}
	// Some DELs come while the pod is still there. They are awaited: see the warning at (*run).empty.
	for i := 0; i < count; i += 3 {
		c.submitted(record(old[i], "old", oldAddr(i), pool.WishEmpty), "empty done ok")
	}
	for i := range count {
		c.kill(old[i])
		young[i] = c.pod(old[i].Name, nil)
		if i%3 == 1 {
			c.writer.Submit(record(old[i], "old", oldAddr(i), pool.WishEmpty))
		}
		c.writer.Submit(record(young[i], "new", newAddr(i), pool.WishPresent))
	}
	for i := range count {
		if i%3 == 2 {
			c.writer.Submit(record(old[i], "old", oldAddr(i), pool.WishEmpty))
		}
	}
	verdicts := map[string]int{}
	const early = (count + 2) / 3
	for range 2*count - early {
		a := c.await()
		verdicts[fmt.Sprint(a.Wish, " ", a.Verdict == pool.VerdictPending)]++
	}
	if diff := cmp.Diff(map[string]int{"present false": count, "empty false": count - early}, verdicts); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	for i := range count {
		c.holds(old[i].Name, key, newAddr(i))
	}
	c.quiet()
}

// One pod, two sandboxes (the first one's pause process died): the old sandbox's DEL must not empty the new one's value,
// neither with another address nor with the same.
func TestA3TwoSandboxesOfOnePod(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.submitted(record(pod, "s2", "10.0.0.2", pool.WishPresent), "present done ok")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty gone value")
	c.holds("p", key, "10.0.0.2")
	c.submitted(record(pod, "s3", "10.0.0.2", pool.WishPresent), "present done ok")
	c.sent()
	c.submitted(record(pod, "s2", "10.0.0.2", pool.WishEmpty), "empty gone superseded")
	if sent := c.sent(); len(sent) != 0 {
		t.Errorf("requests for a sandbox whose address its successor has: %v", sent)
	}
	c.holds("p", key, "10.0.0.2")
	c.submitted(record(pod, "s3", "10.0.0.2", pool.WishEmpty), "empty done ok")
	c.holds("p", key, "")
	c.quiet()
}

func TestA8ForceDeletedPod(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.kill(pod)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty gone notfound")
	c.submitted(record(pod, "s2", "10.0.0.2", pool.WishPresent), "present gone notfound")
	c.submitted(record(pod, "s3", "10.0.0.3", pool.WishAbsent), "absent gone notfound")
	c.quiet()
}

// Nothing is cached between the judgement and the write: the API server itself compares the UID, even when the new pod has
// the old one's address.
func TestA15NewPodWithTheOldAddress(t *testing.T) {
	c := newCluster(t, setting{})
	old := c.pod("p-0", nil)
	c.submitted(record(old, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.kill(old)
	young := c.pod("p-0", nil)
	c.annotate(young, key, "10.0.0.1") // by another writer, so that only the UID tells them apart
	c.submitted(record(old, "s1", "10.0.0.1", pool.WishEmpty), "empty gone uid")
	c.holds("p-0", key, "10.0.0.1")
	c.submitted(record(old, "s1", "10.0.0.1", pool.WishPresent), "present gone uid")
	c.submitted(record(old, "s1", "10.0.0.1", pool.WishAbsent), "absent gone uid")
	c.holds("p-0", key, "10.0.0.1")
	c.quiet()
}

func TestA17ValueOfSomebodyElseIsNoError(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.annotate(pod, key, "10.9.9.9")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty gone value")
	c.holds("p", key, "10.9.9.9")
	c.quiet()
}

// The daemon was down when the sandbox ended; its next start finds the record and clears.
func TestA22ValueOfVanishedSandboxIsCleared(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", func(p *corev1.Pod) { p.Annotations = map[string]string{key: "10.0.0.1"} })
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.holds("p", key, "")
	c.quiet()
}
