package ipamd_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/ipamd"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
)

// with ends the daemon and starts the next with other settings.
func (a *annotated) with(settings ...string) {
	a.t.Helper()
	a.kill()
	a.env = append(a.env, settings...)
	a.start()
}

// object reads the pod's object.
func (a *annotated) object(name string) *corev1.Pod {
	a.t.Helper()
	object := &corev1.Pod{}
	a.check(a.admin.Get(a.t.Context(), client.ObjectKey{Namespace: a.namespace, Name: name}, object))
	return object
}

// posted gives the pod's object the status that a kubelet posts.
func (a *annotated) posted(p *pod, phase corev1.PodPhase) {
	a.t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"phase":%q,"podIP":%q,"podIPs":[{"ip":%q}]}}`, phase, p.addr, p.addr)
	a.check(a.admin.Status().Patch(a.t.Context(), a.object(p.conf.Args[2][1]), client.RawPatch("application/merge-patch+json", patch)))
}

// has waits until the pods have their addresses under these keys, and no others that this project has written.
func (a *annotated) has(pods []*pod, keys ...string) {
	a.t.Helper()
	all := []string{annotate.DefaultKey, annotate.NeutralKey, "cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs", "example.org/ips"}
	for _, p := range pods {
		name := p.conf.Args[2][1]
		a.await(fmt.Sprintf("%s has %v alone", name, keys), func() bool {
			object, found := a.object(name), 0
			for _, key := range all {
				if _, there := object.Annotations[key]; there {
					found++
				}
			}
			for _, key := range keys {
				if object.Annotations[key] != p.addr.String() {
					return false
				}
			}
			return found == len(keys)
		})
	}
}

func (a *annotated) runningOnes(n int) []*pod {
	a.t.Helper()
	var pods []*pod
	for i := range n {
		p := a.running(fmt.Sprint("web-", i))
		a.posted(p, corev1.PodRunning)
		pods = append(pods, p)
	}
	return pods
}

// statusText is what `ipamd status` says.
func (a *annotated) statusText() string {
	a.t.Helper()
	page, err := ipamd.AskStatus(a.t.Context(), "unix:"+filepath.Join(a.dir, "ipamd.sock"))
	a.check(err)
	var text strings.Builder
	a.check(page.Write(&text))
	return text.String()
}

// says waits for a line of `ipamd status`.
func (a *annotated) says(want string) {
	a.t.Helper()
	a.await("ipamd status says "+want, func() bool { return strings.Contains(a.statusText(), want) })
}

// The whole daemon, off, on, with other keys, and off again, under pods that run: each gets what the settings say, loses what
// they said before, and its DEL leaves nothing. The permission is needed until nothing is owned.
func TestA20KnobAndKeysOfANodeWhosePodsRun(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true, "WARM_IP_TARGET=2")
	a.env = append(a.env, "ANNOTATE_POD_IP=false")
	a.start()
	pods := a.runningOnes(4)
	a.has(pods)
	a.says("annotations:  off")
	a.with("ANNOTATE_POD_IP=true")
	a.has(pods, annotate.DefaultKey)
	a.says("last pass over the node's pods: all 4 visited")
	a.says("owned on 4 pods, 0 pending, 0 overdue")
	a.with("ANNOTATE_POD_IP_KEYS=calico,example.org/ips:all")
	a.has(pods, "cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs", "example.org/ips")
	a.says("on, cni.projectcalico.org/podIP, cni.projectcalico.org/podIPs (all addresses), example.org/ips (all addresses)")
	a.del(pods[0])
	a.await("DEL empties every key", func() bool {
		object := a.object("web-0")
		empty := 0
		for _, key := range []string{"cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs", "example.org/ips"} {
			if value, there := object.Annotations[key]; there && value == "" {
				empty++
			}
		}
		return empty == 3
	})
	a.says("owned on 3 pods, 0 pending") // a daemon that dies before its clear is answered leaves it in doubt for half a minute
	a.with("ANNOTATE_POD_IP_KEYS=neutral")
	a.has(pods[1:], annotate.NeutralKey)
	a.with("ANNOTATE_POD_IP=false")
	a.has(pods[1:])
	a.await("nothing is owned", func() bool { return a.metric("vpccni_annotations_owned") == 0 })
	a.says("owned on 0 pods")
	before := a.object("web-1").ResourceVersion
	a.del(pods[1])
	if a.object("web-1").ResourceVersion != before {
		t.Error("a DEL with the knob off, of a pod without a key, changes the pod")
	}
}

// Knob off while a pod has no status yet, and its DEL comes first: the value is emptied, not left for ever.
func TestA20DELAfterTheKnobWentOffEmptiesTheValue(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true)
	a.start()
	p := a.running("web")
	a.reads("web", p.addr.String())
	a.with("ANNOTATE_POD_IP=false")
	a.await("the removal waits for a status", func() bool { return a.metric("vpccni_annotations_pending") == 1 })
	a.reads("web", p.addr.String())
	a.del(p)
	a.reads("web", "")
	a.await("nothing is owned", func() bool { return a.metric("vpccni_annotations_owned") == 0 })
}

// A Job's pod that has finished and stays, its DEL while no daemon runs, handled from the cached result alone: the value is
// emptied by the next daemon, before the address is another pod's.
func TestA19FinishedPodWhoseDELFoundNoDaemonIsEmptied(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true, "IP_COOLDOWN_PERIOD=0")
	a.start()
	job := a.running("job")
	a.reads("job", job.addr.String())
	a.posted(job, corev1.PodRunning)
	a.kill()
	a.posted(job, corev1.PodSucceeded)
	a.del(job)
	a.start()
	a.reads("job", "")
	for i := range 3 {
		next := a.running(fmt.Sprint("next-", i))
		if value, _ := a.value("job"); value == next.addr.String() {
			t.Errorf("%s is given out while the finished pod names it", value)
		}
	}
}

// Churn of Jobs that stay: whenever an address is given out, no finished pod's annotation names it any more.
func TestA23AddressOfAFinishedPodIsNobodyElsesWhileItIsNamed(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true, "IP_COOLDOWN_PERIOD=0", "WARM_IP_TARGET=6")
	a.start()
	var finished []string
	for i := range 12 {
		p := a.running(fmt.Sprint("job-", i))
		for _, name := range finished {
			if value, there := a.value(name); !there || value == p.addr.String() {
				t.Errorf("%s has %q, %v while job-%d has it", name, value, there, i)
			}
		}
		a.reads(p.conf.Args[2][1], p.addr.String())
		a.posted(p, corev1.PodRunning)
		a.posted(p, corev1.PodSucceeded)
		a.del(p)
		finished = append(finished, p.conf.Args[2][1])
	}
	for _, name := range finished {
		a.reads(name, "")
	}
	if n := a.metric("vpccni_addresses_named_elsewhere_total"); n != 0 {
		t.Errorf("%d addresses were given out while named", n)
	}
}

// A restart of a daemon whose node is as it should be: the annotations are not written again.
func TestRestartOfASteadyNodeWritesNothing(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true)
	a.start()
	pods := a.runningOnes(3)
	a.has(pods, annotate.DefaultKey)
	a.kill()
	a.start()
	a.says("last pass over the node's pods: all 3 visited")
	for _, operation := range []string{"set", "clear", "remove", "read"} {
		if n := a.metric(fmt.Sprintf("vpccni_annotation_requests_total{operation=%q,reason=\"ok\"}", operation)); n > 0 {
			t.Errorf("%d requests to %s", n, operation)
		}
	}
	began := time.Now()
	late := a.running("late")
	a.reads("late", late.addr.String())
	a.await("its own watch has shown it", func() bool { return a.metric("vpccni_annotation_visible_seconds_count") == 1 })
	t.Logf("visible %s after ADD began", time.Since(began).Round(time.Millisecond))
}

// DEL of pods that were made while the knob was off, and never had a key, makes no request and changes no object.
func TestA18DELOfPodsWithoutAKeyCostsNoRequest(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true)
	a.env = append(a.env, "ANNOTATE_POD_IP=false")
	a.start()
	pods := a.runningOnes(4)
	var before []string
	for i := range pods {
		before = append(before, a.object(fmt.Sprint("web-", i)).ResourceVersion)
	}
	for i, p := range pods {
		a.del(p)
		a.del(p) // and once more
		if is := a.object(fmt.Sprint("web-", i)).ResourceVersion; is != before[i] {
			t.Errorf("web-%d was changed by its DEL", i)
		}
	}
	if page := a.page("metrics.sock", "/metrics"); strings.Contains(page, "vpccni_annotation_requests_total{") {
		t.Error("requests about annotations were made")
	}
}

// A release that brings the knob, on a cluster that still has the permissions of one without: pods start as before, one metric
// and one event say what is missing, and what was not written is when the permission comes.
func TestA11NewReleaseWithTheOldPermissionsStartsPodsAsBefore(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true)
	permit := a.withoutPermissions()
	a.env = append(a.env, "ANNOTATE_POD_IP=false")
	a.start()
	before := a.running("before")
	a.with("ANNOTATE_POD_IP=true")
	after := a.running("after")
	for _, p := range []*pod{before, after} {
		a.reaches(p, ec2Addr+":80")
	}
	a.await("the refusal is counted", func() bool {
		return a.metric(`vpccni_annotation_requests_total{operation="set",reason="forbidden"}`) > 0
	})
	if _, there := a.value("after"); there {
		t.Error("written without permission")
	}
	permit()
	next := a.running("next") // whose patch is taken, and brings the others back
	for _, p := range []*pod{before, after, next} {
		a.reads(p.conf.Args[2][1], p.addr.String())
	}
}

// withoutPermissions makes the daemon's account one that may do nothing; what it gives grants it what the manifests do.
func (a *annotated) withoutPermissions() (permit func()) {
	a.t.Helper()
	user := "old-" + a.namespace
	a.kubeconfig(user)
	return func() {
		role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "patch"}}}}
		role.Name = user
		a.check(a.admin.Create(a.t.Context(), role))
		binding := &rbacv1.ClusterRoleBinding{
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		}
		binding.Name = user
		a.check(a.admin.Create(a.t.Context(), binding))
		a.await("the permission is known to the server", func() bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods"},
			}}
			return a.admin.Create(a.t.Context(), review) == nil && review.Status.Allowed
		})
	}
}

// An address that a pod's object names, though no sandbox has it, goes to another pod last; who must take it is told of, in an
// event and a metric.
func TestAddressThatAnUnfinishedPodNamesGoesLast(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true, "MINIMUM_IP_TARGET=3", "WARM_IP_TARGET=0")
	a.start()
	var free []string
	a.await("three free addresses", func() bool {
		free = regexp.MustCompile(`"Addr": "([0-9.]+)",\s+"ENI": "[^"]+",\s+"Condition": "free"`).FindAllString(a.page("introspection.sock", "/v1/status"), -1)
		return len(free) == 3
	})
	first := regexp.MustCompile(`[0-9]+\.[0-9.]+`).FindString(free[0])
	named, ghost := netip.MustParseAddr(first), a.pod("ghost")
	ghost.addr = named
	a.posted(ghost, corev1.PodRunning)
	a.shows("introspection.sock", "/v1/status", fmt.Sprintf("%q", a.namespace+"/ghost"))
	one, two := a.running("one"), a.running("two")
	if one.addr == named || two.addr == named {
		t.Errorf("%s is given out before others", named)
	}
	three := a.running("three")
	if three.addr != named {
		t.Errorf("the third pod gets %s", three.addr)
	}
	a.await("it is counted", func() bool { return a.metric("vpccni_addresses_named_elsewhere_total") == 1 })
	a.await("it is told of", func() bool {
		var events corev1.EventList
		a.check(a.admin.List(t.Context(), &events, client.InNamespace("default")))
		for _, event := range events.Items {
			if event.InvolvedObject.Name == a.namespace && event.Reason == "AddressStillNamed" && strings.Contains(event.Message, first) {
				return true
			}
		}
		return false
	})
}

// A running pod whose sandbox has ended, so that its key is "", gets another one from a daemon with other settings: the old key
// goes, or a reader takes the network of a pod that runs for over.
func TestA4EmptiedKeyGoesWhenThePodRunsAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setting string
		keys    []string
	}{
		"off":        {setting: "ANNOTATE_POD_IP=false"},
		"other keys": {setting: "ANNOTATE_POD_IP_KEYS=neutral", keys: []string{annotate.NeutralKey}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAnnotated(t, true)
			a.start()
			p := a.running("web")
			a.reads("web", p.addr.String())
			a.del(p)
			a.reads("web", "")
			a.await("the clear is answered", func() bool { return a.metric("vpccni_annotations_owned") == 0 })
			a.with(c.setting)
			q := a.newer(p, "web-again")
			a.check(a.tryAdd(q))
			a.posted(q, corev1.PodRunning)
			a.has([]*pod{q}, c.keys...)
		})
	}
}
