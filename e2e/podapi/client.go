// Package podapi is the part of the Kubernetes API that the harness's programs speak: pods, their status, nodes, and a
// watch of pods.
//
// It owns nothing and decides nothing: every call is one request, every error is apimachinery's. It uses a REST client for
// core/v1 rather than the generated clientset, which would double the size of three small programs. Start with Client;
// watch.go holds the watch.
package podapi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The client's own rate limit must never be what a measurement sees: 110 pods at once cost each program about 500 requests.
const (
	clientQPS   = 500
	clientBurst = 1000
)

// Client speaks core/v1. Errors are *errors.StatusError where the server answered.
type Client struct {
	rest rest.Interface
}

// New makes a client from a configuration, which it does not change.
func New(config *rest.Config) (*Client, error) {
	c := rest.CopyConfig(config)
	c.APIPath = "/api"
	c.GroupVersion = &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c.QPS, c.Burst = clientQPS, clientBurst
	// A pod in protobuf costs server and agent a fifth of the time that JSON does, and an agent that is late drops packets.
	c.AcceptContentTypes, c.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make API client for %s: %w", c.Host, err)
	}
	return &Client{rest: client}, nil
}

// FromKubeconfig makes a client from a kubeconfig file.
func FromKubeconfig(path string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return New(config)
}

// Create makes a pod.
func (c *Client) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	made := &corev1.Pod{}
	err := c.rest.Post().Namespace(pod.Namespace).Resource("pods").Body(pod).Do(ctx).Into(made)
	if err != nil {
		return nil, fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return made, nil
}

// Get reads a pod from the server.
func (c *Client) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := c.rest.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod); err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// List reads the pods of one node, or of all nodes when node is "".
func (c *Client) List(ctx context.Context, node string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	options := &metav1.ListOptions{FieldSelector: ofNode(node).String()}
	err := c.rest.Get().Resource("pods").VersionedParams(options, scheme.ParameterCodec).Do(ctx).Into(list)
	if err != nil {
		return nil, fmt.Errorf("list pods of node %q: %w", node, err)
	}
	return list.Items, nil
}

// Patch sends one patch to a pod; subresource is "" or "status".
func (c *Client) Patch(ctx context.Context, pod types.NamespacedName, subresource string, patch Patch) (*corev1.Pod, error) {
	got := &corev1.Pod{}
	request := c.rest.Patch(patch.Type).Namespace(pod.Namespace).Resource("pods").Name(pod.Name)
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	if err := request.Body(patch.Body).Do(ctx).Into(got); err != nil {
		return nil, fmt.Errorf("patch pod %s: %w", pod, err)
	}
	return got, nil
}

// Patch is one patch body and its kind.
type Patch struct {
	Type types.PatchType
	Body []byte
}

// Delete deletes a pod. Grace is in seconds; nil leaves the pod's own. A uid other than "" must match.
func (c *Client) Delete(ctx context.Context, pod types.NamespacedName, uid types.UID, grace *int64) error {
	options := &metav1.DeleteOptions{GracePeriodSeconds: grace}
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := c.rest.Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).Body(options).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", pod, err)
	}
	return nil
}

// CreateNode registers a node.
func (c *Client) CreateNode(ctx context.Context, node *corev1.Node) error {
	if err := c.rest.Post().Resource("nodes").Body(node).Do(ctx).Error(); err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	return nil
}

// PatchNodeStatus merges a JSON document into a node's status.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, patch Patch) error {
	err := c.rest.Patch(patch.Type).Resource("nodes").Name(name).SubResource("status").Body(patch.Body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", name, err)
	}
	return nil
}

func ofNode(node string) fields.Selector {
	if node == "" {
		return fields.Everything()
	}
	return fields.OneTermEqualSelector("spec.nodeName", node)
}
