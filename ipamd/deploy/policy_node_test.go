package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const ownKey = `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`

// The token's node is what the API server wrote into it when it was asked for it: a daemon cannot choose it.
func TestPolicyKnowsTheTokensNode(t *testing.T) {
	c := installed(t)
	here, there, nowhere := c.pod("p-", hereNode, nil), c.pod("p-", thereNode, nil), c.pod("p-", "", nil)
	bound, unbound, unscheduled := c.account(c.daemonPod(hereNode)), c.account(nil), c.account(c.daemonPod(""))
	for _, row := range []struct {
		name string
		user *user
		pod  *corev1.Pod
		want string
	}{
		{"own node", bound, here, ""},
		{"another node", bound, there, "pods of its own node, " + hereNode},
		{"a pod that has no node yet", bound, nowhere, "pods of its own node"},
		{"a token that is bound to nothing", unbound, here, "the token names no node"},
		{"a token of a pod without a node", unscheduled, here, "the token names no node"},
		{"no node on either side", unscheduled, nowhere, "the token names no node"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.user.patch(row.pod, merge, ownKey)
			if row.want == "" && err != nil || row.want != "" && (!refusedBy(err, "aws-node-pods") || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("answer %v, want %q", err, row.want)
			}
		})
	}
}

// What is below a pod, and its making and end, are none of the daemon's business, even where RBAC allows it.
func TestPolicyRefusesSubresourcesAndWholePods(t *testing.T) {
	c := installed(t)
	user := c.account(c.daemonPod(hereNode))
	pod, free := c.pod("p-", hereNode, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2m")}
	}), c.pod("p-", "", nil)
	ctx := t.Context()
	status := client.RawPatch(merge, []byte(`{"status":{"podIP":"10.0.0.1"}}`))
	debug := client.RawPatch(strategic, []byte(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"evil"}]}}`))
	resize := client.RawPatch(strategic, []byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1m"}}}]}}`))
	metadata := client.RawPatch(merge, []byte(ownKey))
	for name, do := range map[string]func() error{
		"status":               func() error { return user.SubResource("status").Patch(ctx, pod.DeepCopy(), status) },
		"own key by status":    func() error { return user.SubResource("status").Patch(ctx, pod.DeepCopy(), metadata) },
		"ephemeral containers": func() error { return user.SubResource("ephemeralcontainers").Patch(ctx, pod.DeepCopy(), debug) },
		"resize":               func() error { return user.SubResource("resize").Patch(ctx, pod.DeepCopy(), resize) },
		"eviction": func() error {
			return user.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}})
		},
		"binding": func() error {
			return user.SubResource("binding").Create(ctx, free.DeepCopy(), &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: free.Name, Namespace: free.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: hereNode}})
		},
		"exec": func() error {
			return user.rest(ctx, "POST", "/api/v1/namespaces/default/pods/"+pod.Name+"/exec?command=id&stdout=true")
		},
		"create": func() error {
			made := pod.DeepCopy()
			made.ResourceVersion, made.UID, made.Name = "", "", "made"
			return user.Create(ctx, made)
		},
		"delete":     func() error { return user.Delete(ctx, pod.DeepCopy()) },
		"delete all": func() error { return user.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("default")) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := do(); !refusedBy(err, "aws-node-pods") {
				t.Errorf("answer %v, want the policy's refusal", err)
			}
		})
	}
	if now := c.read(pod); now.ResourceVersion != pod.ResourceVersion {
		t.Errorf("the pod is changed: %+v", now)
	}
}

// Without the parameter object the keys are not known. Everybody else's pods must not be held up by that, and the daemon may
// still touch no more than addresses in annotations of its node's pods.
func TestMissingParameterObject(t *testing.T) {
	c := installed(t)
	user := c.account(c.daemonPod(hereNode))
	c.forget(user)
	pod := c.pod("p-", hereNode, furnished)
	label := client.RawPatch(merge, []byte(`{"metadata":{"labels":{"by":"admin"}}}`))
	if err := c.admin.Patch(t.Context(), pod.DeepCopy(), label); err != nil {
		t.Errorf("another user is held up: %v", err)
	}
	if err := user.patch(pod, merge, ownKey); err != nil {
		t.Errorf("own key: %v", err)
	}
	for _, refused := range valueRefusals() {
		if err := user.patch(pod, refused.kind, refused.body); !refusedBy(err, "aws-node-pods") || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("%s: %v", refused.name, err)
		}
	}
	if err := user.patch(c.pod("p-", thereNode, nil), merge, ownKey); !refusedBy(err, "aws-node-pods") {
		t.Errorf("another node's pod: %v", err)
	}
	c.restore()
	c.inForce()
}

// forget removes the parameter object and waits until the policy knows. The test's end puts it back.
func (c *cluster) forget(user *user) {
	c.t.Helper()
	pod := c.pod("p-", hereNode, nil)
	if err := c.admin.Delete(c.t.Context(), parameters()); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(c.restore)
	c.until("the policy knows no keys", func() bool {
		return user.patch(pod, merge, `{"metadata":{"annotations":{"example.org/ip":"10.0.0.2"}}}`) == nil
	})
}

// An object that lists nothing allows nothing.
func TestEmptyParameterObject(t *testing.T) {
	c := installed(t)
	user, pod := c.account(c.daemonPod(hereNode)), c.pod("p-", hereNode, nil)
	object := parameters()
	if err := c.admin.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.restore)
	c.until("own key is refused", func() bool { return refusedBy(user.patch(pod, merge, ownKey), "aws-node-annotation-keys") })
}

// The server gives each evaluation a budget. The largest pod that it takes stays inside it, and a patch that would burst it is
// refused, not let through.
func TestPolicyCost(t *testing.T) {
	c := installed(t)
	user := c.account(c.daemonPod(hereNode))
	pod := c.pod("large-", hereNode, func(pod *corev1.Pod) {
		pod.Annotations, pod.Labels = map[string]string{}, map[string]string{}
		for i := range 250 {
			pod.Annotations[fmt.Sprintf("example.org/a%d", i)] = strings.Repeat("x", 1000) // 256 KiB is the limit
			pod.Labels[fmt.Sprintf("example.org/l%d", i)] = "label"
		}
		pod.Spec.Containers = nil
		for i := range 100 {
			container := corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.invalid/none"}
			for j := range 50 {
				container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("V", j), Value: strings.Repeat("y", 100)})
			}
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	})
	if err := user.patch(pod, merge, ownKey); err != nil {
		t.Errorf("own key of a large pod: %v", err)
	}
	c.forget(user) // what follows, the first policy must refuse alone
	many := c.pod("many-", hereNode, nil)
	for _, count := range []int{17, 500, 8000} {
		annotations := map[string]string{}
		for i := range count {
			annotations[fmt.Sprintf("example.org/ip%d", i)] = "10.0.0.1"
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			t.Fatal(err)
		}
		if err := user.patch(many, merge, string(body)); !refusedBy(err, "aws-node-pods") {
			t.Errorf("%d keys at once: %v", count, err)
		}
	}
}

// The server keeps ten owners that update a pod, and folds the oldest into one where the daemon is one more. That is not the
// daemon's doing.
func TestPolicyAndAPodOfManyOwners(t *testing.T) {
	c := installed(t)
	user, pod := c.account(c.daemonPod(hereNode)), c.pod("p-", hereNode, furnished)
	for i := range 9 {
		body := fmt.Appendf(nil, `{"metadata":{%q:{"example.org/l%d":"x"}}}`, []string{"labels", "annotations"}[i%2], i)
		if err := c.admin.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(merge, body), client.FieldOwner(fmt.Sprint("owner-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(c.read(pod).ManagedFields); got != 10 {
		t.Fatalf("the pod has %d owners", got)
	}
	if err := user.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(merge, []byte(ownKey)), client.FieldOwner("vpc-cni")); err != nil {
		t.Error(err)
	}
	if got := len(c.read(pod).ManagedFields); got != 10 {
		t.Errorf("the pod has %d owners: the server has folded none", got)
	}
}

// rest sends a bare request.
func (u *user) rest(ctx context.Context, verb, path string) error {
	u.t.Helper()
	core, err := restClient(u.config)
	if err != nil {
		u.t.Fatal(err)
	}
	return core.Verb(verb).RequestURI(path).Do(ctx).Error()
}
