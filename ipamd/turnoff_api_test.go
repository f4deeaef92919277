package ipamd_test

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
	"github.com/vpc-cni/vpc-cni/ipamd/deploy"
)

const grantFile = "annotation-grant.yaml"

// shipped makes the daemon what an operator installs: all manifests, and a token of their account, bound to the daemon's pod.
// The manifests' names are the cluster's, which the tests of this package share: for one test alone.
func shipped(t *testing.T, a *annotated) {
	t.Helper()
	files, err := fs.Glob(deploy.Manifests, "manifests/*.yaml")
	a.check(err)
	for _, file := range files {
		a.manifest(filepath.Base(file), func(object *unstructured.Unstructured) error {
			return a.admin.Patch(t.Context(), object, client.Apply, client.FieldOwner("installer"), client.ForceOwnership) //nolint:staticcheck // untyped objects
		})
	}
	pod := kubetest.Pod(account.DaemonNamespace, account.DaemonName+"-"+a.namespace, a.namespace)
	pod.Spec.ServiceAccountName, pod.Spec.HostNetwork = account.DaemonName, true
	a.check(a.admin.Create(t.Context(), pod))
	token := a.token(kubetest.Account(account.DaemonNamespace, account.DaemonName), pod)
	a.granted(true)
	a.guarded(token, pod)
}

// manifest does something with each object of a shipped file.
func (a *annotated) manifest(file string, do func(*unstructured.Unstructured) error) {
	a.t.Helper()
	text, err := deploy.Manifests.ReadFile("manifests/" + file)
	a.check(err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		body, err := yaml.ToJSON([]byte(document))
		a.check(err)
		object := &unstructured.Unstructured{}
		a.check(object.UnmarshalJSON(body))
		a.check(do(object))
	}
}

// grant applies the file with the grant, or deletes what is in it, and waits until the server does so.
func (a *annotated) grant(on bool) {
	a.t.Helper()
	a.manifest(grantFile, func(object *unstructured.Unstructured) error {
		if on {
			return a.admin.Create(a.t.Context(), object)
		}
		return a.admin.Delete(a.t.Context(), object)
	})
	a.granted(on)
}

// granted waits until the server's answer to whether the daemon may patch pods is as it should be.
func (a *annotated) granted(want bool) {
	a.t.Helper()
	a.await("the server has taken up the grant", func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               account.DaemonUser,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: a.namespace, Verb: "patch", Resource: "pods"},
		}}
		a.check(a.admin.Create(a.t.Context(), review))
		return review.Status.Allowed == want
	})
}

// guarded waits until both policies refuse what is not the daemon's.
func (a *annotated) guarded(token string, pod *corev1.Pod) {
	a.t.Helper()
	server, err := apiServer()
	a.check(err)
	config := rest.AnonymousClientConfig(server.Config())
	config.BearerToken = token
	daemon, err := client.New(config, client.Options{Mapper: a.admin.RESTMapper()})
	a.check(err)
	refused := func(body, policy string) bool {
		err := daemon.Patch(a.t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)), client.DryRunAll)
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
	}
	a.await("the policies are in force", func() bool {
		return refused(`{"metadata":{"labels":{"a":"b"}}}`, "aws-node-pods") &&
			refused(`{"metadata":{"annotations":{"example.org/nobodys":"::1"}}}`, "aws-node-annotation-keys")
	})
}

// The whole daemon as it is shipped. The wrong order first, grant before setting: the removals wait, event and metrics say so,
// and they are done when the grant is back. Then the documented one: the setting first, and the grant when nothing is owned.
func TestA20TurnedOffInTheWrongOrderAndInTwoSteps(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true, "WARM_IP_TARGET=2")
	shipped(t, a)
	a.start()
	pods := a.runningOnes(3)
	a.has(pods, annotate.DefaultKey)
	a.grant(false)
	a.with("ANNOTATE_POD_IP=false")
	a.stuck(pods)
	a.grant(true)
	a.catchesUp()
	a.has(pods)
	a.says("owned on 0 pods, 0 pending, 0 overdue")

	a.with("ANNOTATE_POD_IP=true")
	a.has(pods, annotate.DefaultKey)
	a.await("all are owned", func() bool { return a.metric("vpccni_annotations_owned") == 3 })
	a.with("ANNOTATE_POD_IP=false")
	a.has(pods)
	a.await("nothing is owned", func() bool { return a.metric("vpccni_annotations_owned") == 0 })
	a.says("owned on 0 pods, 0 pending, 0 overdue")
	a.grant(false)
	a.nothingAsked(func() {
		a.del(pods[0])
		a.running("late")
	})
	a.with("ANNOTATE_POD_IP=false") // a further life has nothing to ask either
	a.nothingAsked(func() { a.del(pods[1]) })
}

// stuck waits until the removals of the pods' values are refused, and fails the test unless they are pending and told.
func (a *annotated) stuck(pods []*pod) {
	a.t.Helper()
	a.await("the removals are refused", func() bool {
		return strings.Contains(a.page("metrics.sock", "/metrics"), `vpccni_annotation_requests_total{operation="remove",reason="forbidden"}`)
	})
	a.await("an event says so", func() bool { return a.events("PodAnnotationForbidden") > 0 })
	a.has(pods, annotate.DefaultKey)
	if owned, pending := a.metric("vpccni_annotations_owned"), a.metric("vpccni_annotations_pending"); owned != 3 || pending == 0 {
		a.t.Errorf("owned on %v pods, %v pending; want 3 and some", owned, pending)
	}
}

// catchesUp waits until nothing is owned: a refusal is tried again after a minute, give or take half, later every five.
func (a *annotated) catchesUp() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 10*time.Minute)
	defer cancel()
	for a.metric("vpccni_annotations_owned") != 0 {
		select {
		case <-ctx.Done():
			a.t.Fatalf("%v pods are owned long after the grant is back", a.metric("vpccni_annotations_owned"))
		case <-time.After(time.Second):
		}
	}
}

// nothingAsked fails the test if the daemon was refused something, or wants something still, after do.
func (a *annotated) nothingAsked(do func()) {
	a.t.Helper()
	do()
	if metrics := a.page("metrics.sock", "/metrics"); strings.Contains(metrics, `reason="forbidden"`) {
		a.t.Error("the API server was asked for a change after the daemon said that it owns nothing")
	}
	if got := a.metric("vpccni_annotations_pending"); got != 0 {
		a.t.Errorf("%v pending, want 0", got)
	}
}

// events counts the events of a reason about this world's node, its daemon's pod or its pods.
func (a *annotated) events(reason string) (count int) {
	a.t.Helper()
	var list corev1.EventList
	a.check(a.admin.List(a.t.Context(), &list))
	for _, event := range list.Items {
		about := event.InvolvedObject
		if event.Reason == reason && (about.Namespace == a.namespace || strings.HasSuffix(about.Name, a.namespace)) {
			count++
		}
	}
	return count
}
