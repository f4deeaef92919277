package eksnode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// The incumbent's own names in the cluster.
const (
	kubeSystem     = "kube-system"
	serviceAccount = "aws-node"
)

// apiClient speaks to the API server as its administrator.
type apiClient struct {
	rest rest.Interface
}

func newClient(config *rest.Config) (apiClient, error) {
	c := rest.CopyConfig(config)
	c.QPS = -1 // no limit of the client's own
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return apiClient{}, fmt.Errorf("make API client: %w", err)
	}
	return apiClient{rest: client}, nil
}

// create creates one object below a path of the API, and reads the answer into got unless that is nil.
func (c apiClient) create(ctx context.Context, path string, object, got any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode object for %s: %w", path, err)
	}
	answer, err := c.rest.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("create in %s: %w", path, err)
	}
	if got == nil {
		return nil
	}
	if err := json.Unmarshal(answer, got); err != nil {
		return fmt.Errorf("decode answer of %s: %w", path, err)
	}
	return nil
}

// get reads what is at a path of the API.
func (c apiClient) get(ctx context.Context, path string, got any) error {
	answer, err := c.rest.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	if err := json.Unmarshal(answer, got); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

// install makes what the incumbent's chart makes beside its DaemonSet: the resource definitions, the service account and what
// that may do.
func (c apiClient) install(ctx context.Context) error {
	objects := []struct {
		path   string
		object any
	}{
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("eniconfigs", "ENIConfig", "crd.k8s.amazonaws.com")},
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("cninodes", "CNINode", "vpcresources.k8s.aws")},
		{"/api/v1/namespaces/" + kubeSystem + "/serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: serviceAccount}}},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: serviceAccount}, Rules: rules()}},
		{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: serviceAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: serviceAccount},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: kubeSystem, Name: serviceAccount}},
		}},
	}
	for _, o := range objects {
		if err := c.create(ctx, o.path, o.object, nil); err != nil {
			return err
		}
	}
	return nil
}

// rules are what the chart allows the agent, with the patch of pods that its value for the pod annotation adds.
func rules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"crd.k8s.amazonaws.com"}, Resources: []string{"eniconfigs"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"namespaces", "nodes"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: append([]string{"patch"}, read...)},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "list"}},
		{APIGroups: []string{"vpcresources.k8s.aws"}, Resources: []string{"cninodes"}, Verbs: append([]string{"patch"}, read...)},
	}
}

// definition is a custom resource definition without a schema of its own: cluster-wide, version v1alpha1.
func definition(plural, kind, group string) map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"scope": "Cluster", "group": group,
			"names": map[string]any{"plural": plural, "kind": kind},
			"versions": []map[string]any{{
				"name": "v1alpha1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}
}

// token gives the service account's token, as kubelet would project it.
func (c apiClient) token(ctx context.Context) (string, error) {
	var got authenticationv1.TokenRequest
	path := "/api/v1/namespaces/" + kubeSystem + "/serviceaccounts/" + serviceAccount + "/token"
	if err := c.create(ctx, path, &authenticationv1.TokenRequest{}, &got); err != nil {
		return "", err
	}
	return got.Status.Token, nil
}

// register makes the node's object and the agent's pod on it. The agent reads the pods that the node may run from there.
func (c apiClient) register(ctx context.Context, name string, address netip.Addr, maxPods int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"},
	}}
	if err := c.create(ctx, "/api/v1/nodes", node, nil); err != nil {
		return err
	}
	pods := fmt.Sprint(maxPods)
	status, err := json.Marshal(map[string]any{"status": map[string]any{
		"capacity": map[string]string{"pods": pods}, "allocatable": map[string]string{"pods": pods},
		"addresses": []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.String()}},
	}})
	if err != nil {
		return fmt.Errorf("encode status of node %s: %w", name, err)
	}
	err = c.rest.Patch("application/strategic-merge-patch+json").AbsPath("/api/v1/nodes/" + name + "/status").Body(status).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", name, err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: agentPod(name), Labels: map[string]string{"k8s-app": "aws-node"}},
		Spec: corev1.PodSpec{
			NodeName: name, HostNetwork: true, ServiceAccountName: serviceAccount,
			Containers: []corev1.Container{{Name: "aws-node", Image: "none"}},
		},
	}
	return c.create(ctx, "/api/v1/namespaces/"+kubeSystem+"/pods", pod, nil)
}

// agentPod is the name of the agent's pod on a node.
func agentPod(node string) string { return "aws-node-" + node }
