package annotate_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

const (
	calicoOne  = "cni.projectcalico.org/podIP"
	calicoList = "cni.projectcalico.org/podIPs"
)

// keyed gives a writer the keys of a setting, and the names of the keys.
func keyed(t *testing.T, s *setting, text string) []string {
	t.Helper()
	names, joined, err := annotate.Keys(text)
	if err != nil {
		t.Fatal(err)
	}
	s.writer = func(c *annotate.Config) { c.Joined = joined }
	return names
}

// twoFamilies is a pod with two addresses.
func twoFamilies(r pool.Annotation) pool.Annotation {
	r.More = []netip.Addr{netip.MustParseAddr("2001:db8::7")}
	return r
}

// Calico takes presence and the end of a network from podIP alone, and addresses from podIPs first: both are written, and
// both are emptied, each time in one request.
func TestCalicosKeysAreWrittenAndEmptiedTogether(t *testing.T) {
	var s setting
	names := keyed(t, &s, "calico,aws")
	c := newCluster(t, s)
	pod := c.pod("p", nil)
	c.submitted(twoFamilies(record(pod, "s1", "10.0.0.1", pool.WishPresent, names...)), "present done ok", names...)
	c.holds("p", calicoOne, "10.0.0.1")
	c.holds("p", calicoList, "10.0.0.1,2001:db8::7")
	c.holds("p", key, "10.0.0.1")
	c.submitted(twoFamilies(record(pod, "s1", "10.0.0.1", pool.WishEmpty, names...)), "empty done ok", names...)
	for _, name := range names {
		c.holds("p", name, "")
	}
	c.requested("PATCH p", "PATCH p")
}

// One bare address is what the strictest reader of the key takes; all of them only go where somebody asked for that.
func TestA31JoinedAddressesAreAnOptIn(t *testing.T) {
	var s setting
	names := keyed(t, &s, "aws,example.org/ips:all,neutral")
	c := newCluster(t, s)
	pod, single := c.pod("p", nil), c.pod("single", nil)
	c.submitted(twoFamilies(record(pod, "s1", "10.0.0.1", pool.WishPresent, names...)), "present done ok", names...)
	c.submitted(record(single, "s2", "2001:db8::8", pool.WishPresent, names...), "present done ok", names...)
	c.holds("p", key, "10.0.0.1")
	c.holds("p", annotate.NeutralKey, "10.0.0.1")
	c.holds("p", "example.org/ips", "10.0.0.1,2001:db8::7")
	for _, name := range names {
		c.holds("single", name, "2001:db8::8")
	}
}

// A form that was changed is written once, and a value of the former form is still the owner's: it is cleared with it.
func TestChangedFormIsWrittenOnceAndClearedInEitherForm(t *testing.T) {
	s := setting{watch: true}
	names := keyed(t, &s, "example.org/ips:all")
	c := newCluster(t, s)
	pod, other := c.pod("p", nil), c.pod("other", nil)
	r := twoFamilies(record(pod, "s1", "10.0.0.1", pool.WishPresent, names...))
	late := twoFamilies(record(other, "s2", "10.0.0.2", pool.WishPresent, names...))
	c.submitted(r, "present done ok")
	c.submitted(late, "present done ok")
	c.sent()
	c.restart(func(s *setting) { keyed(t, s, "example.org/ips:first") })
	c.pass([]pool.Annotation{old(r)}, "present done ok")
	c.requested("PATCH p")
	c.holds("p", "example.org/ips", "10.0.0.1")
	late.Wish = pool.WishEmpty // it ended before it was visited
	c.submitted(late, "empty done ok")
	c.holds("other", "example.org/ips", "")
}

// A finished Job's pod stays in the API: its sandbox goes, and with it the value, before the address can be another pod's.
func TestA23FinishedPodThatStaysIsEmptied(t *testing.T) {
	c := newCluster(t, setting{watch: true})
	pod, next := c.pod("job", nil), c.pod("next", nil)
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishPresent), "present done ok")
	c.status(pod, "10.0.0.1")
	finished := c.read("job")
	finished.Status.Phase = corev1.PodSucceeded
	if err := c.admin.Status().Update(t.Context(), finished); err != nil {
		t.Fatal(err)
	}
	c.shown("job", "finished", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	c.submitted(record(pod, "s1", "10.0.0.1", pool.WishEmpty), "empty done ok") // the pool gives the address out after this
	c.submitted(record(next, "s2", "10.0.0.1", pool.WishPresent), "present done ok")
	c.holds("job", key, "")
	c.holds("next", key, "10.0.0.1")
	if ip := c.read("job").Status.PodIP; ip != "10.0.0.1" {
		t.Errorf("the status of a finished pod has %q: kubelet leaves it", ip)
	}
	c.requested("PATCH job", "PATCH job", "PATCH next")
}
