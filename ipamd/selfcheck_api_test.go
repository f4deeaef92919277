package ipamd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
)

// bound gives the daemon a service account's token that is bound to its pod, and makes both.
func (a *annotated) bound() *corev1.Pod {
	a.t.Helper()
	account := kubetest.Account(a.namespace, "aws-node")
	a.check(a.admin.Create(a.t.Context(), account))
	pod := kubetest.Pod(a.namespace, "aws-node-abcde", a.namespace)
	pod.Spec.ServiceAccountName, pod.Spec.HostNetwork = account.Name, true
	a.check(a.admin.Create(a.t.Context(), pod))
	a.token(account, pod)
	return pod
}

// token gives the daemon's next life a token that is bound to the pod.
func (a *annotated) token(account *corev1.ServiceAccount, pod *corev1.Pod) string {
	a.t.Helper()
	token, err := kubetest.Token(a.t.Context(), a.admin, account, pod)
	a.check(err)
	path := filepath.Join(a.dir, "kubeconfig")
	kubeconfig, err := clientcmd.LoadFromFile(path)
	a.check(err)
	for _, user := range kubeconfig.AuthInfos {
		*user = clientcmdapi.AuthInfo{Token: token}
	}
	a.check(clientcmd.WriteToFile(*kubeconfig, path))
	return token
}

// may gives the daemon's account rights in all namespaces.
func (a *annotated) may(resource string, verbs ...string) {
	a.t.Helper()
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}}}
	role.Name = a.namespace + "-" + resource
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: a.namespace, Name: "aws-node"}},
	}
	binding.Name = role.Name
	a.check(a.admin.Create(a.t.Context(), role))
	a.check(a.admin.Create(a.t.Context(), binding))
}

// told waits for the self-check's event on the daemon's pod, and fails the test if there is more than one.
func (a *annotated) told(pod *corev1.Pod) corev1.Event {
	a.t.Helper()
	var list corev1.EventList
	a.await("event on the daemon's pod", func() bool {
		a.check(a.admin.List(a.t.Context(), &list, client.InNamespace(a.namespace)))
		return len(list.Items) > 0
	})
	event := list.Items[0]
	if len(list.Items) != 1 || event.Count != 1 || event.InvolvedObject.UID != pod.UID || event.Reason != "PodAnnotationSelfCheck" {
		a.t.Errorf("events %+v, want one about pod %s", list.Items, pod.UID)
	}
	return event
}

// Without the grant: one event on the daemon's pod, one line, the metric, and pods start.
func TestA10SelfCheckTellsOnTheDaemonsPod(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true)
	pod := a.bound()
	a.may("events", "create", "patch")
	a.may("pods", "get", "list", "watch")
	a.start()
	a.running("p")
	event := a.told(pod)
	if event.Type != corev1.EventTypeWarning || !strings.Contains(event.Message, "may not patch pods") {
		t.Errorf("event %s: %s", event.Type, event.Message)
	}
	log, err := os.ReadFile(a.log.Name())
	a.check(err)
	if n := strings.Count(string(log), "annotations' self-check found trouble"); n != 1 {
		t.Errorf("%d lines in the log, want one", n)
	}
	text := a.page("metrics.sock", "/metrics")
	for _, want := range []string{`{kind="permission"} 1`, `{kind="keys"} 0`, `{kind="policy"} 0`} {
		if !strings.Contains(text, "vpccni_annotation_trouble"+want+"\n") {
			t.Errorf("no vpccni_annotation_trouble%s", want)
		}
	}
}

// With the grant and no policy, everything works and one remark says what is missing.
func TestSelfCheckRemarksThatNothingGuardsTheGrant(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true)
	pod := a.bound()
	a.may("events", "create", "patch")
	a.may("pods", "get", "list", "watch", "patch")
	a.start()
	p := a.running("p")
	event := a.told(pod)
	if event.Type != corev1.EventTypeNormal || !strings.Contains(event.Message, "no admission policy keeps") {
		t.Errorf("event %s: %s", event.Type, event.Message)
	}
	if text := a.page("metrics.sock", "/metrics"); !strings.Contains(text, `vpccni_annotation_trouble{kind="policy"} 1`+"\n") {
		t.Error("the metric does not tell")
	}
	a.reads("p", p.addr.String())
	if object := a.read(pod); len(object.Annotations) != 0 {
		t.Errorf("the rehearsal has written %v", object.Annotations)
	}
}

func (a *annotated) read(pod *corev1.Pod) *corev1.Pod {
	a.t.Helper()
	now := &corev1.Pod{}
	a.check(a.admin.Get(a.t.Context(), client.ObjectKeyFromObject(pod), now))
	return now
}
