package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
)

// Finalizer keeps a deleted pod's object, so that a test can see what became of it.
const Finalizer = "e2e.vpc-cni.test/look"

// Option changes a pod before it is created.
type Option func(*corev1.Pod)

// Kept makes the pod's object outlive the pod until LetGo.
func Kept(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, Finalizer) }

// Unreported makes the kubelet never get round to the pod's status.
func Unreported(pod *corev1.Pod) {
	pod.Annotations = map[string]string{sandbox.StatusDelayKey: "24h"}
}

// HostNetwork puts the pod into its node's network.
func HostNetwork(pod *corev1.Pod) { pod.Spec.HostNetwork = true }

// Create creates a pod on a node.
func (c *Cluster) Create(ctx context.Context, node int, name string, options ...Option) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			NodeName:   c.Info().Nodes[node].Name,
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	for _, option := range options {
		option(pod)
	}
	return c.API.Create(ctx, pod)
}

// Start creates a pod and waits for its container's start. It gives the pod and its address as the plugin told it.
func (c *Cluster) Start(ctx context.Context, node int, name string, options ...Option) (*corev1.Pod, string, error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	events, stop := c.Events()
	defer stop()
	pod, err := c.Create(ctx, node, name, options...)
	if err != nil {
		return nil, "", err
	}
	e, err := Await(ctx, events, event.ContainerStarted, pod.UID)
	return pod, e.Address, err
}

// Delete deletes a pod. Force removes its object at once, whatever its node says.
func (c *Cluster) Delete(ctx context.Context, pod *corev1.Pod, force bool) error {
	var grace *int64
	if force {
		grace = new(int64)
	}
	return c.API.Delete(ctx, name(pod), pod.UID, grace)
}

// LetGo takes the finalizer off.
func (c *Cluster) LetGo(ctx context.Context, pod *corev1.Pod) error {
	_, err := c.API.Patch(ctx, name(pod), "", podapi.Patch{Type: types.MergePatchType, Body: []byte(`{"metadata":{"finalizers":null}}`)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Annotation reads an annotation from the server; present is false where the pod has no such key.
func (c *Cluster) Annotation(ctx context.Context, pod *corev1.Pod, key string) (value string, present bool, err error) {
	now, err := c.API.Get(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return "", false, err
	}
	if now.UID != pod.UID {
		return "", false, fmt.Errorf("read annotation of pod %s: it has been replaced", pod.Name)
	}
	value, present = now.Annotations[key]
	return value, present, nil
}

// At is the pod as the cluster knows it.
func At(pod *corev1.Pod) cluster.Pod {
	return cluster.Pod{NamespacedName: name(pod), Node: pod.Spec.NodeName}
}

func name(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// eventQueue is how many events may wait for a test: more than a suite's pods make.
const eventQueue = 4096

// Events gives the cluster's events from now on. Call it before what it is to see.
func (c *Cluster) Events() (events <-chan event.Event, stop func()) {
	queue := make(chan event.Event, eventQueue)
	stop = c.Follow(func(e event.Event) {
		select {
		case queue <- e:
		default: // a test that does not read has no use for more
		}
	})
	return queue, stop
}

// Await waits for an event of a kind about a pod. What goes wrong with the pod meanwhile is part of the error.
func Await(ctx context.Context, events <-chan event.Event, kind event.Kind, pod types.UID) (event.Event, error) {
	var trouble error
	for {
		select {
		case e := <-events:
			switch {
			case e.UID != string(pod):
			case e.Kind == kind:
				return e, nil
			case e.Detail != "":
				trouble = errors.New(string(e.Kind) + ": " + e.Detail)
			}
		case <-ctx.Done():
			return event.Event{}, fmt.Errorf("wait for %s of pod %s: %w", kind, pod, errors.Join(context.Cause(ctx), trouble))
		}
	}
}

// Gone waits until nothing of the pod is left on its node.
func (c *Cluster) Gone(ctx context.Context, events <-chan event.Event, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	_, err := Await(ctx, events, event.PodGone, pod.UID)
	return err
}

// Steady is how long something must stay as it is to count as untouched: a wrong patch comes within milliseconds of its
// cause, or after the annotation writer's first retries.
const Steady = 2 * time.Second
