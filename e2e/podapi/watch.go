package podapi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Handler receives what a watch saw, one call at a time, in the server's order. It must not block for long and must not
// change the pod. At is when this process saw the event.
type Handler interface {
	// Present is called for a pod that was added or changed.
	Present(pod *corev1.Pod, at time.Time)
	// Absent is called for a pod that is gone; the object is the last one seen.
	Absent(pod *corev1.Pod, at time.Time)
}

// Watch lists and watches the pods of one node (all nodes when node is "") until ctx ends. It calls synced once, after the
// first list was handed to the handler; synced may be nil.
func (c *Client) Watch(ctx context.Context, node string, handler Handler, synced func()) error {
	selector := ofNode(node)
	source := cache.NewListWatchFromClient(c.rest, "pods", metav1.NamespaceAll, selector)
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.Pod{},
		Handler:       adapter{handler},
	})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		controller.RunWithContext(ctx)
	}()
	if cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) && synced != nil {
		synced()
	}
	<-finished
	if err := ctx.Err(); err != context.Canceled {
		return fmt.Errorf("watch pods of node %q: %w", node, err)
	}
	return nil
}

// adapter turns client-go's callbacks into a Handler's.
type adapter struct {
	handler Handler
}

func (a adapter) OnAdd(object any, _ bool) {
	if pod, ok := object.(*corev1.Pod); ok {
		a.handler.Present(pod, time.Now())
	}
}

func (a adapter) OnUpdate(_, object any) {
	if pod, ok := object.(*corev1.Pod); ok {
		a.handler.Present(pod, time.Now())
	}
}

func (a adapter) OnDelete(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		a.handler.Absent(pod, time.Now())
	}
}
