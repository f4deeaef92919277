package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/podapi"
)

// memoryAPI is an API server for one node's pods.
type memoryAPI struct {
	handler chan podapi.Handler
	watcher podapi.Handler
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	nodes   []string // what was said of the node, in order
	posted  map[types.UID]corev1.PodStatus
}

func (m *memoryAPI) Watch(ctx context.Context, _ string, handler podapi.Handler, synced func()) error {
	synced()
	m.handler <- handler
	<-ctx.Done()
	return nil
}

func (m *memoryAPI) Patch(_ context.Context, pod types.NamespacedName, _ string, patch podapi.Patch) (*corev1.Pod, error) {
	var body struct {
		Metadata struct{ UID types.UID }
		Status   corev1.PodStatus
	}
	if err := json.Unmarshal(patch.Body, &body); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.posted == nil {
		m.posted = map[types.UID]corev1.PodStatus{}
	}
	m.posted[body.Metadata.UID] = body.Status
	return m.pods[pod.Name], nil
}

func (m *memoryAPI) Delete(_ context.Context, pod types.NamespacedName, uid types.UID, _ *int64) error {
	m.mu.Lock()
	object := m.pods[pod.Name]
	delete(m.pods, pod.Name)
	m.mu.Unlock()
	if object != nil && object.UID == uid {
		m.watcher.Absent(object, time.Now())
	}
	return nil
}

func (m *memoryAPI) CreateNode(_ context.Context, node *corev1.Node) error {
	m.nodes = append(m.nodes, "created "+node.Name)
	return nil
}

func (m *memoryAPI) PatchNodeStatus(_ context.Context, name string, patch podapi.Patch) error {
	var body struct{ Status corev1.NodeStatus }
	if err := json.Unmarshal(patch.Body, &body); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range body.Status.Conditions {
		m.nodes = append(m.nodes, fmt.Sprintf("%s %s=%s", name, c.Type, c.Status))
	}
	return nil
}

func (m *memoryAPI) create(pod *corev1.Pod) {
	m.mu.Lock()
	m.pods[pod.Name] = pod
	m.mu.Unlock()
	m.watcher.Present(pod, time.Now())
}

func (m *memoryAPI) remove(pod *corev1.Pod) {
	dying := pod.DeepCopy()
	dying.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	m.watcher.Present(dying, time.Now())
}
