package annotate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func TestA5PodWithoutAnnotationsIsWrittenAndCleared(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	if pod.Annotations != nil {
		t.Fatal("the pod has annotations")
	}
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok", key)
	c.holds("p", key, "10.0.0.1")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok", key)
	c.holds("p", key, "")
	if diff := cmp.Diff([]string{"PATCH p", "PATCH p"}, c.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	c.quiet()
}

func TestA6IPv6Address(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "2001:db8::7", pool.WishPresent), "present done ok")
	c.holds("p", key, "2001:db8::7")
	c.submitted(record(pod, "s1", "2001:db8::7", pool.WishEmpty), "empty done ok")
	c.holds("p", key, "")
}

// A pod that never had the key never gets "": readers would cut a terminating pod's network (calico).
func TestA4MissingKeyIsNeverMadeEmpty(t *testing.T) {
	c := newCluster(t, setting{})
	bare, other := c.pod("bare", nil), c.pod("other", func(p *corev1.Pod) { p.Annotations = map[string]string{"x": "y"} })
	c.untilSettled()
	c.submitted(record(bare, "s1", "10.0.0.1", pool.WishEmpty), "empty gone absent", key)
	c.submitted(record(other, "s2", "10.0.0.2", pool.WishEmpty), "empty gone absent", key)
	c.holds("bare", key, "<none>")
	c.holds("other", key, "<none>")
}

// "" on a pod that runs again is removed where an earlier sandbox's clear may have left it. What others wrote stays, "" too.
func TestA4OwnEmptyValueIsRemovedAndNoOther(t *testing.T) {
	const other = "example.org/other"
	c := newCluster(t, setting{})
	pod := c.pod("p", func(p *corev1.Pod) { p.Annotations = map[string]string{key: "", other: ""} })
	c.status(pod, "10.0.0.2")
	c.untilSettled()
	rec := record(pod, "s2", "10.0.0.2", pool.WishAbsent)
	rec.Keys, rec.Emptied = []string{key}, []string{key}
	c.submitted(rec, "absent done ok", key)
	c.holds("p", key, "<none>")
	rec.Keys, rec.Emptied = []string{other}, nil
	c.submitted(rec, "absent gone value", other)
	c.holds("p", other, "")
	changed := c.pod("changed", func(p *corev1.Pod) { p.Annotations = map[string]string{key: "192.0.2.1"} })
	c.status(changed, "10.0.0.3")
	rec = record(changed, "s3", "10.0.0.3", pool.WishAbsent)
	rec.Keys, rec.Emptied = []string{key}, []string{key}
	c.submitted(rec, "absent gone value", key)
	c.holds("changed", key, "192.0.2.1")
}

func TestClearWhenAlreadyEmptyIsDone(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", func(p *corev1.Pod) { p.Annotations = map[string]string{key: ""} })
	c.untilSettled()
	before := c.read("p").ResourceVersion
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok", key)
	if after := c.read("p").ResourceVersion; after != before {
		t.Error("the pod was changed")
	}
}

func TestRepeatedSetMakesNoNewVersion(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	r := record(pod, "s1", "10.0.0.1", pool.WishPresent)
	c.submitted(r, "present done ok")
	before := c.read("p").ResourceVersion
	c.submitted(r, "present done ok")
	if after := c.read("p").ResourceVersion; after != before {
		t.Error("the pod was changed")
	}
}

func TestTwoKeysAreWrittenAtOnceAndJudgedApart(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent, key, otherKey), "present done ok", key, otherKey)
	c.holds("p", key, "10.0.0.1")
	c.holds("p", otherKey, "10.0.0.1")
	if sent := c.sent(); len(sent) != 1 {
		t.Errorf("%v for two keys", sent)
	}
	c.annotate(pod, otherKey, "somebody else's")
	c.writer.Submit(record(pod, "s1", "10.0.0.1", pool.WishEmpty, key, otherKey))
	verdicts := map[pool.Verdict][]string{}
	for range 2 {
		a := c.await()
		verdicts[a.Verdict] = a.Keys
	}
	if diff := cmp.Diff(map[pool.Verdict][]string{pool.VerdictDone: {key}, pool.VerdictGone: {otherKey}}, verdicts); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	c.holds("p", key, "")
	c.holds("p", otherKey, "somebody else's")
	c.quiet()
}

// On a rename a reader finds the old key until the new one is there and the status has an address.
func TestRenameRemovesOldKeyLast(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok", key)
	renamed := record(pod, "s1", "10.0.0.1", pool.WishPresent, otherKey)
	renamed.Stale = []string{key}
	c.submitted(renamed, "present done ok", otherKey)
	c.expect("present pending nostatus", key)
	c.holds("p", otherKey, "10.0.0.1")
	c.holds("p", key, "10.0.0.1")
	c.status(pod, "10.0.0.1")
	c.expect("present done ok", key)
	c.holds("p", otherKey, "10.0.0.1")
	c.holds("p", key, "<none>")
	c.quiet()
}

// DEL in the middle of a rename clears the old key too.
func TestDelDuringRenameClearsBothKeys(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok", key)
	renamed := record(pod, "s1", "10.0.0.1", pool.WishPresent, otherKey)
	renamed.Stale = []string{key}
	c.submitted(renamed, "present done ok", otherKey)
	c.expect("present pending nostatus", key)
	gone := record(pod, "s1", "10.0.0.1", pool.WishEmpty, otherKey)
	gone.Stale = []string{key}
	c.submitted(gone, "empty done ok", key, otherKey)
	c.holds("p", otherKey, "")
	c.holds("p", key, "")
	c.quiet()
}

func TestA20KnobOffRemovesOnceStatusHasAddress(t *testing.T) {
	c := newCluster(t, setting{})
	running, starting, foreign := c.pod("running", nil), c.pod("starting", nil), c.pod("foreign", nil)
	for i, pod := range []*corev1.Pod{running, starting, foreign} {
		c.submitted(record(pod, "s", fmt.Sprint("10.0.0.", i+1), pool.WishPresent), "present done ok")
	}
	c.status(running, "10.0.0.1")
	c.status(foreign, "10.0.0.3")
	c.annotate(foreign, key, "10.9.9.9")
	c.submitted(record(running, "s", "10.0.0.1", pool.WishAbsent), "absent done ok", key)
	c.submitted(record(foreign, "s", "10.0.0.3", pool.WishAbsent), "absent gone value", key)
	c.submitted(record(starting, "s", "10.0.0.2", pool.WishAbsent), "absent pending nostatus", key)
	c.holds("running", key, "<none>")
	c.holds("foreign", key, "10.9.9.9")
	c.holds("starting", key, "10.0.0.2")
	c.status(starting, "10.0.0.2")
	c.expect("absent done ok", key)
	c.holds("starting", key, "<none>")
	c.quiet()
}

// A pod that is being deleted keeps its key until its DEL sets "", whatever the knob says.
func TestTerminatingPodIsClearedNotStripped(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	c.submitted(record(pod, "s", "10.0.0.1", pool.WishPresent), "present done ok")
	c.status(pod, "10.0.0.1")
	if err := c.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(30)); err != nil {
		t.Fatal(err)
	}
	c.submitted(record(pod, "s", "10.0.0.1", pool.WishAbsent), "absent pending terminating")
	c.holds("p", key, "10.0.0.1")
	c.submitted(record(pod, "s", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.holds("p", key, "")
	c.quiet()
}

// A runtime that does not pass the pod's UID costs one read.
func TestUIDUnknownIsLearnedByOneRead(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", nil)
	pod.UID = ""
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.holds("p", key, "10.0.0.1")
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.holds("p", key, "")
	if diff := cmp.Diff([]string{"GET p", "PATCH p", "PATCH p"}, c.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestHostNetworkPodIsNeverWritten(t *testing.T) {
	c := newCluster(t, setting{})
	pod := c.pod("p", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	for _, uid := range []types.UID{pod.UID, ""} {
		pod.UID = uid
		c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present gone hostnetwork")
		c.holds("p", key, "<none>")
	}
	c.quiet()
}

// The UID that the runtime passes for a static pod is not that of its API object.
func TestStaticPodIsFoundByItsMirror(t *testing.T) {
	const hash = "b8f7e3cbe2a1d3f8f3d8b6d4a7c9e015"
	c := newCluster(t, setting{})
	mirror := c.pod("web-node-1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
	})
	static := mirror.DeepCopy()
	static.UID = hash
	c.submitted(record(static, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.holds("web-node-1", key, "10.0.0.1")
	c.sent()
	// Remembered: the clear needs no search.
	c.submitted(record(static, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.holds("web-node-1", key, "")
	if diff := cmp.Diff([]string{"PATCH web-node-1"}, c.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	// A mirror of another static pod is another pod.
	static.UID = "00000000000000000000000000000000"
	c.submitted(record(static, "s2", "10.0.0.2", pool.WishPresent), "present gone uid")
	c.holds("web-node-1", key, "")
}

// A daemon that starts anew has not yet seen the mirror when it clears.
func TestStaticPodIsClearedAfterRestart(t *testing.T) {
	const hash = "b8f7e3cbe2a1d3f8f3d8b6d4a7c9e015"
	c := newCluster(t, setting{})
	mirror := c.pod("web-node-1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash, key: "10.0.0.1"}
	})
	mirror.UID = hash
	c.submitted(record(mirror, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok")
	c.holds("web-node-1", key, "")
}

func TestA29FullNodeOnRealServer(t *testing.T) {
	c := newCluster(t, setting{})
	var pods []*corev1.Pod
	for i := range 110 {
		pods = append(pods, c.pod(fmt.Sprint("p-", i), nil))
	}
	start := time.Now()
	for i, pod := range pods {
		c.writer.Submit(record(pod, "s", fmt.Sprint("10.0.0.", i+1), pool.WishPresent))
	}
	for range pods {
		if a := c.await(); a.Verdict != pool.VerdictDone {
			t.Errorf("%+v", a)
		}
	}
	t.Logf("110 pods written in %s", time.Since(start))
	if sent := c.sent(); len(sent) != 110 || slices.ContainsFunc(sent, func(s string) bool { return s[:5] != "PATCH" }) {
		t.Errorf("%d requests, want one patch each", len(sent))
	}
}

// untilSettled waits until what a former daemon might have sent can arrive no more (Settle is 3 s here).
func (c *cluster) untilSettled() {
	c.t.Helper()
	start := time.Now()
	c.until("settled", func() bool { return time.Since(start) > 3100*time.Millisecond })
}
