package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

const (
	manifests = "manifests"
	daemon    = "aws-node"    // name of DaemonSet, service account and roles
	system    = "kube-system" // its namespace
	hereNode  = "node-here"
	thereNode = "node-there"
	// patience bounds every wait for the real API server; a busy machine needs a second at most.
	patience = time.Minute
)

// server is the one API server of this test binary. The namespaces that the tests run in end it.
var server = sync.OnceValues(kubetest.Start)

// cluster is the API server for one test.
type cluster struct {
	t     *testing.T
	admin client.Client
	base  *rest.Config // without a user
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	control, err := server()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, base: rest.AnonymousClientConfig(control.Config())}
	if c.admin, err = client.New(control.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	c.until("the server has made its namespaces", func() bool {
		return c.admin.Get(t.Context(), client.ObjectKey{Name: system}, &corev1.Namespace{}) == nil
	})
	return c
}

// installed is a cluster with all manifests, in which the account may do everything with pods that RBAC can allow: what is
// refused then, the policy refuses.
func installed(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.apply(files(t)...)
	all := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everything"}, Rules: all}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: daemon}},
	}
	c.create(role)
	c.create(binding)
	t.Cleanup(func() {
		for _, object := range []client.Object{binding, role} {
			if err := c.admin.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		}
	})
	c.inForce()
	return c
}

// inForce waits until both policies refuse what they must, and the daemon's own change passes.
func (c *cluster) inForce() {
	c.t.Helper()
	user := c.account(c.daemonPod(hereNode))
	pod := c.pod("probe-", hereNode, nil)
	var label, foreign, own error
	round := 0 // a patch that changes nothing is never refused
	defer func() {
		if c.t.Failed() {
			c.t.Logf("last answers: label: %v; foreign key: %v; own key: %v", label, foreign, own)
		}
	}()
	c.until("the policies are in force and the roles work", func() bool {
		round++
		label = user.patch(pod, types.MergePatchType, fmt.Sprintf(`{"metadata":{"labels":{"a":"b%d"}}}`, round))
		foreign = user.patch(pod, types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{"example.org/a":"::%d"}}}`, round))
		own = user.patch(pod, types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"::%d"}}}`, round))
		return refusedBy(label, "aws-node-pods") && refusedBy(foreign, "aws-node-annotation-keys") && own == nil
	})
}

func refusedBy(err error, policy string) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
}

// files gives the paths of all manifests.
func files(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	return paths
}

// documents gives the objects of a manifest file.
func documents(t *testing.T, path string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reader := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer reader.Close()
	var all [][]byte
	buffer := make([]byte, len(text)+1)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		document, err := yaml.ToJSON(buffer[:n])
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if string(document) != "null" {
			all = append(all, document)
		}
	}
}

// apply applies manifests as `kubectl apply --server-side` does.
func (c *cluster) apply(paths ...string) {
	c.t.Helper()
	for _, path := range paths {
		for _, document := range documents(c.t, path) {
			if err := c.put(document); err != nil {
				c.t.Fatalf("%s: %v", path, err)
			}
		}
	}
}

func (c *cluster) put(document []byte, options ...client.PatchOption) error {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(document); err != nil {
		return err
	}
	options = append(options, client.FieldOwner("installer"), client.ForceOwnership)
	return c.admin.Patch(c.t.Context(), object, client.RawPatch(types.ApplyPatchType, document), options...)
}

func (c *cluster) create(object client.Object) {
	c.t.Helper()
	if err := c.admin.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

// pod makes a pod on a node ("": none yet); change may be nil.
func (c *cluster) pod(prefix, node string, change func(*corev1.Pod)) *corev1.Pod {
	c.t.Helper()
	pod := kubetest.Pod("default", "", node)
	pod.GenerateName = prefix
	if change != nil {
		change(pod)
	}
	c.create(pod)
	return pod
}

// daemonPod makes a pod as the DaemonSet has it on a node.
func (c *cluster) daemonPod(node string) *corev1.Pod {
	c.t.Helper()
	return c.pod("aws-node-", node, func(pod *corev1.Pod) {
		pod.Namespace, pod.Spec.ServiceAccountName, pod.Spec.HostNetwork = system, daemon, true
	})
}

// user is somebody who speaks to the server.
type user struct {
	client.Client
	t      *testing.T
	config *rest.Config
}

// account gives the daemon's service account with a token that is bound to the pod; nil: to none.
func (c *cluster) account(pod *corev1.Pod) *user {
	c.t.Helper()
	token, err := kubetest.Token(c.t.Context(), c.admin, kubetest.Account(system, daemon), pod)
	if err != nil {
		c.t.Fatal(err)
	}
	config := rest.CopyConfig(c.base)
	config.BearerToken = token
	made, err := client.New(config, client.Options{Mapper: c.admin.RESTMapper()})
	if err != nil {
		c.t.Fatal(err)
	}
	return &user{made, c.t, config}
}

// patch sends one patch. Nothing is kept of the answer but its error.
func (u *user) patch(pod *corev1.Pod, kind types.PatchType, body string) error {
	u.t.Helper()
	var options []client.PatchOption
	if kind == types.ApplyPatchType {
		options = append(options, client.FieldOwner("daemon"), client.ForceOwnership)
		body = strings.Replace(body, "{", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,`, pod.Name), 1)
	}
	return u.Patch(u.t.Context(), pod.DeepCopy(), client.RawPatch(kind, []byte(body)), options...)
}

func (c *cluster) read(pod *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	now := &corev1.Pod{}
	if err := c.admin.Get(c.t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
		c.t.Fatal(err)
	}
	return now
}

// until polls until ok or patience is over.
func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("never: %s", what)
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // pace of polling, bounded by the deadline
	}
}

// parameters is the policy's parameter object, without its keys.
func parameters() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "aws-node-annotation-keys"}}
}

// restore makes the parameter object what the manifest says.
func (c *cluster) restore() {
	for _, document := range documents(c.t, filepath.Join(manifests, "annotation-keys.yaml")) {
		object := &corev1.ConfigMap{}
		if err := yaml.Unmarshal(document, object); err != nil {
			c.t.Fatal(err)
		}
		err := c.admin.Update(context.Background(), object)
		if apierrors.IsNotFound(err) {
			err = c.admin.Create(context.Background(), object)
		}
		if err != nil {
			c.t.Error(err)
		}
	}
}

// restClient is for what no typed client does.
func restClient(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &corev1.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientFor(config)
}
