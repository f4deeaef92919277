package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// clientTimeout bounds a request with everything: connection, sending, waiting, reading. It is kept by contexts, because
	// rest.Config's own would also be sent as the server's deadline.
	clientTimeout = 10 * time.Second
	// serverTimeout is the deadline that the server is asked to keep (the parameter "timeout", apiserver's
	// WithRequestDeadline). It is shorter than the client's, so that a slow server says so (504) before the client gives
	// up, and so that a request whose client gave up is not carried out much later.
	serverTimeout = "8s"
	// dialTimeout is short enough that a server that is not there is told from one that does not answer: a request that
	// found no connection was certainly not carried out.
	dialTimeout = 5 * time.Second
	// keepAlive is the pace of TCP keep-alives, net/http's default.
	keepAlive = 30 * time.Second
)

// fieldManager names the daemon in a pod's managedFields.
const fieldManager = "vpc-cni"

// Config says where the API server is and who asks.
type Config struct {
	Kubeconfig string // path; "" takes the pod's own service account
	Endpoint   string // replaces the server's URL: kube-proxy may not serve the service address yet; "" keeps it
	Node       string // name of this node
	UserAgent  string // "" gives "vpc-cni"
	// Wrap puts a layer around the connection, for metrics and tests; nil: none.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Around is nil but in tests.
	Around Around
}

// Around makes a request that is not about a pod (those are annotate's to name) by calling run, once or not at all, and
// passes on its error. Nil just calls it. Tests end the process there.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// Client is a client for core/v1. Its methods are safe for use by several goroutines. Errors are *errors.StatusError of
// apimachinery where the server answered.
type Client struct {
	core   *rest.RESTClient
	node   string
	around Around
}

// New makes a client. It reads credentials but makes no call, so it succeeds while the API server is down.
func New(c Config) (*Client, error) {
	config, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register core/v1: %w", err)
	}
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// A pod in protobuf costs the daemon and the server a fifth of the time that JSON does.
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	core, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client for API server %s: %w", config.Host, err)
	}
	return &Client{core: core, node: c.Node, around: c.Around}, nil
}

func restConfig(c Config) (*rest.Config, error) {
	config, err := credentials(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if c.Endpoint != "" {
		config.Host = c.Endpoint
	}
	config.UserAgent = c.UserAgent
	if config.UserAgent == "" {
		config.UserAgent = "vpc-cni"
	}
	// No limit here: 110 pods that start at once must not wait for a client's bucket. The annotation writer spreads what
	// is not urgent, and the server has its own priority and fairness.
	config.QPS = -1
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	if c.Wrap != nil {
		config.Wrap(c.Wrap)
	}
	return config, nil
}

func credentials(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("read service account (set KUBECONFIG when not in a pod): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// Patch sends one patch of the given type to a pod, once. The server is asked to give up after 8 s.
func (c *Client) Patch(ctx context.Context, namespace, name string, kind types.PatchType, body []byte) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	pod := &corev1.Pod{}
	err := c.core.Patch(kind).Namespace(namespace).Resource("pods").Name(name).
		Param("timeout", serverTimeout).Param("fieldManager", fieldManager).
		MaxRetries(0).Body(body).Do(ctx).Into(pod)
	if err != nil {
		return nil, fmt.Errorf("patch pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// Get reads one pod from the server, not from a cache.
func (c *Client) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	pod := &corev1.Pod{}
	err := c.core.Get().Namespace(namespace).Resource("pods").Name(name).
		Param("timeout", serverTimeout).MaxRetries(0).Do(ctx).Into(pod)
	if err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// List reads this node's pods from the server, not from a cache.
func (c *Client) List(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	var list corev1.PodList
	selector := fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	err := c.core.Get().Resource("pods").Param("fieldSelector", selector).
		Param("timeout", serverTimeout).MaxRetries(0).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", c.node, err)
	}
	return list.Items, nil
}
