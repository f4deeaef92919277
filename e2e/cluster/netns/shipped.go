package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/ipamd/deploy"
)

// shippedPoll is the pace of questions to the API server.
const shippedPoll = 50 * time.Millisecond

// api gives a client as the administrator, or as somebody that change makes of it.
func (c *Cluster) api(change func(*rest.Config)) (*rest.RESTClient, error) {
	config := c.Config()
	config.APIPath, config.GroupVersion, config.QPS = "/api", &corev1.SchemeGroupVersion, -1
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if change != nil {
		change(config)
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of the API server: %w", err)
	}
	return client, nil
}

// ship applies the manifests that an operator applies, and makes the daemon's pod of every node.
func (c *Cluster) ship(ctx context.Context) error {
	if len(c.nodes) == 0 {
		return nil // who brings machines brings what runs there
	}
	admin, err := c.api(nil)
	if err != nil {
		return err
	}
	var documents [][]byte
	err = fs.WalkDir(deploy.Manifests, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(deploy.Manifests, name)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			documents = append(documents, []byte(document))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	for _, document := range documents {
		if err := apply(ctx, admin, document); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.makePod(ctx, admin); err != nil {
			return err
		}
	}
	return nil
}

// apply applies one object as `kubectl apply --server-side` does. The server makes its namespaces a moment after its start.
func apply(ctx context.Context, admin *rest.RESTClient, document []byte) error {
	text, err := yaml.ToJSON(document)
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	resource := strings.ToLower(object.GetKind()) + "s"
	if strings.HasSuffix(object.GetKind(), "Policy") {
		resource = strings.TrimSuffix(resource, "ys") + "ies"
	}
	prefix := "/apis"
	if !strings.Contains(object.GetAPIVersion(), "/") {
		prefix = "/api"
	}
	where := path.Join(prefix, object.GetAPIVersion())
	if namespace := object.GetNamespace(); namespace != "" {
		where = path.Join(where, "namespaces", namespace)
	}
	where = path.Join(where, resource, object.GetName())
	return poll(ctx, "apply "+where, func() (bool, error) {
		err := admin.Patch(types.ApplyPatchType).AbsPath(where).Param("fieldManager", "installer").Param("force", "true").
			Body(text).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// poll asks until the answer is yes or an error.
func poll(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(shippedPoll)
	defer ticker.Stop()
	for {
		yes, err := ask()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// podName is the name of the daemon's pod on the node.
func (n *node) podName() string { return account.DaemonName + "-" + n.name }

// makePod makes the daemon's pod as the DaemonSet would: the daemon's token is bound to it, and so names its node.
func (n *node) makePod(ctx context.Context, admin *rest.RESTClient) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: account.DaemonNamespace, Name: n.podName()},
		Spec: corev1.PodSpec{
			NodeName: n.name, ServiceAccountName: account.DaemonName, HostNetwork: true,
			Containers: []corev1.Container{{Name: account.DaemonName, Image: "none"}},
		},
	}
	made := &corev1.Pod{}
	err := admin.Post().Namespace(pod.Namespace).Resource("pods").Body(pod).Do(ctx).Into(made)
	if err != nil {
		return fmt.Errorf("make pod of the daemon of node %s: %w", n.name, err)
	}
	n.pod = made.UID
	return nil
}

// renew asks for a new token of the daemon, as kubelet does for a pod's volume, and writes the kubeconfig that reads it.
func (n *node) renew(ctx context.Context) error {
	admin, err := n.cluster.api(nil)
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"},
		Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: n.podName(), UID: n.pod},
		},
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("write request for a token: %w", err)
	}
	answer, err := admin.Post().Namespace(account.DaemonNamespace).Resource("serviceaccounts").Name(account.DaemonName).
		SubResource("token").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("request token of node %s: %w", n.name, err)
	}
	if err := json.Unmarshal(answer, request); err != nil {
		return fmt.Errorf("read token of node %s: %w", n.name, err)
	}
	if err := os.WriteFile(n.dir("token.new"), []byte(request.Status.Token), 0o600); err != nil {
		return fmt.Errorf("write token of node %s: %w", n.name, err)
	}
	if err := os.Rename(n.dir("token.new"), n.dir("token")); err != nil {
		return fmt.Errorf("write token of node %s: %w", n.name, err)
	}
	access, err := clientcmd.LoadFromFile(n.kubeconfig(account.IPAMD))
	if err != nil {
		return fmt.Errorf("read the way of node %s to the server: %w", n.name, err)
	}
	for name := range access.AuthInfos {
		access.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: n.dir("token")}
	}
	if err := clientcmd.WriteToFile(*access, n.daemonKubeconfig()); err != nil {
		return fmt.Errorf("write kubeconfig of the daemon of node %s: %w", n.name, err)
	}
	return nil
}

func (n *node) daemonKubeconfig() string { return n.dir("daemon.kubeconfig") }

// asDaemon makes of a configuration the daemon of the node, as the server knows it by its bound token.
func (n *node) asDaemon(config *rest.Config) {
	config.Impersonate = rest.ImpersonationConfig{
		UserName: account.DaemonUser, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {n.name}},
	}
}
