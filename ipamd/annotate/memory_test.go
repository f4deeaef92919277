package annotate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// memory is an API server for virtual time, which a real one cannot live in. It keeps the laws that were measured on the real
// one (the tests against that are in *_api_test.go) and refuses patches that it does not know.
type memory struct {
	latency time.Duration
	// fate decides what becomes of a request; nil: carried out and answered.
	fate func(operation string) fate

	mu       sync.Mutex
	pods     map[podName]*corev1.Pod
	requests []string // "patch ns/name", "get ns/name"
	inFlight map[podName]int
	doubled  bool // two requests for one pod at a time
	most     int  // in flight together
	history  map[podName][]string

	// The watch, if there is one: lag is how late each piece of news is (in order all the same), news gets it.
	lag   func() time.Duration
	news  func(was, is *corev1.Pod)
	shown map[podName]*corev1.Pod
	next  time.Time // of the last news
	begun chan struct{}
	rv    int
}

// store puts a pod in place and lets the watch know; nil: it is gone. The caller holds the lock.
func (m *memory) store(name podName, pod *corev1.Pod) {
	m.rv++
	if pod == nil {
		delete(m.pods, name)
	} else {
		pod.ResourceVersion = strconv.Itoa(m.rv)
		m.pods[name] = pod
		pod = pod.DeepCopy()
	}
	if m.lag == nil {
		return
	}
	at := time.Now().Add(m.lag())
	if !at.After(m.next) {
		at = m.next.Add(1)
	}
	m.next = at
	time.AfterFunc(time.Until(at), func() { m.show(name, pod) })
}

func (m *memory) show(name podName, pod *corev1.Pod) {
	m.mu.Lock()
	was := m.shown[name]
	if delete(m.shown, name); pod != nil {
		m.shown[name] = pod
	}
	m.mu.Unlock()
	m.news(was, pod)
}

// Pod implements Pods.
func (m *memory) Pod(namespace, name string) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown[podName{namespace, name}]
}

// Synced implements Pods.
func (m *memory) Synced() <-chan struct{} { return m.begun }

// fate of a request.
type fate struct {
	err   error         // the answer; nil: the true one
	late  time.Duration // with lost: when it is carried out, from its start
	lost  bool          // the client hears nothing until its time-out
	never bool          // not carried out
	pause time.Duration // before the answer
}

func newMemory() *memory {
	return &memory{shown: map[podName]*corev1.Pod{}, begun: make(chan struct{}), pods: map[podName]*corev1.Pod{}, inFlight: map[podName]int{}, history: map[podName][]string{}}
}

func (m *memory) add(namespace, name, uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = namespace, name, types.UID(uid)
	m.store(podName{namespace, name}, pod)
}

func (m *memory) change(namespace, name string, f func(*corev1.Pod)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := m.pods[podName{namespace, name}].DeepCopy()
	f(pod)
	m.store(podName{namespace, name}, pod)
}

func (m *memory) remove(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(podName{namespace, name}, nil)
}

// value gives an annotation, "<none>" if there is none.
func (m *memory) value(namespace, name, key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := m.pods[podName{namespace, name}]
	if pod == nil {
		return "<gone>"
	}
	if value, ok := pod.Annotations[key]; ok {
		return value
	}
	return "<none>"
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.requests)
}

// Patch implements PodAPI.
func (m *memory) Patch(ctx context.Context, namespace, name string, kind types.PatchType, body []byte) (*corev1.Pod, error) {
	return m.serve(ctx, "patch", podName{namespace, name}, func() (*corev1.Pod, error) {
		return m.apply(podName{namespace, name}, kind, body)
	})
}

// Get implements PodAPI.
func (m *memory) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return m.serve(ctx, "get", podName{namespace, name}, func() (*corev1.Pod, error) { return m.find(podName{namespace, name}) })
}

// List implements PodAPI.
func (m *memory) List(context.Context) ([]corev1.Pod, error) {
	return nil, errors.New("not implemented")
}

func (m *memory) serve(ctx context.Context, operation string, name podName, carryOut func() (*corev1.Pod, error)) (*corev1.Pod, error) {
	m.begin(operation, name)
	defer m.end(name)
	var f fate
	if m.fate != nil {
		f = m.fate(operation)
	}
	if err := pause(ctx, m.latency+f.pause); err != nil {
		return nil, err
	}
	var pod *corev1.Pod
	var err error
	switch {
	case f.lost && !f.never:
		time.AfterFunc(f.late, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			_, _ = carryOut() // nobody hears of it
		})
	case !f.never:
		m.mu.Lock()
		pod, err = carryOut()
		m.mu.Unlock()
	}
	if f.lost {
		<-ctx.Done()
		return nil, fmt.Errorf("%s pod: %w", operation, ctx.Err())
	}
	if f.err != nil {
		return nil, f.err
	}
	return pod, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (m *memory) begin(operation string, name podName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, operation+" "+name.namespace+"/"+name.name)
	m.inFlight[name]++
	m.doubled = m.doubled || m.inFlight[name] > 1
	total := 0
	for _, n := range m.inFlight {
		total += n
	}
	m.most = max(m.most, total)
}

func (m *memory) end(name podName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight[name]--
}

func (m *memory) find(name podName) (*corev1.Pod, error) {
	pod := m.pods[name]
	if pod == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name.name)
	}
	return pod.DeepCopy(), nil
}

func (m *memory) apply(name podName, kind types.PatchType, body []byte) (*corev1.Pod, error) {
	pod, err := m.find(name)
	if err != nil {
		return nil, err
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if kind == types.MergePatchType {
		err = applyMerge(pod, body)
	} else {
		err = applySteps(pod, body)
	}
	if err != nil {
		return nil, err
	}
	if !maps.Equal(pod.Annotations, m.pods[name].Annotations) {
		m.store(name, pod)
	}
	m.history[name] = append(m.history[name], pod.Annotations[DefaultKey])
	return pod.DeepCopy(), nil
}

func applyMerge(pod *corev1.Pod, body []byte) error {
	var patch struct {
		Metadata struct {
			UID         types.UID
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if patch.Metadata.UID != pod.UID {
		return status(422, causes("metadata.uid"))
	}
	for key, value := range patch.Metadata.Annotations {
		pod.Annotations[key] = value
	}
	return nil
}

func applySteps(pod *corev1.Pod, body []byte) error {
	var steps []struct {
		Op, Path string
		Value    *string
	}
	if err := json.Unmarshal(body, &steps); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	failedTest := status(422, &metav1.StatusDetails{})
	for _, s := range steps {
		if s.Path == "/metadata/uid" && s.Op == "test" {
			if *s.Value != string(pod.UID) {
				return failedTest
			}
			continue
		}
		pointer, ok := strings.CutPrefix(s.Path, "/metadata/annotations/")
		if !ok {
			return apierrors.NewBadRequest("path " + s.Path + " not implemented")
		}
		key := strings.NewReplacer("~1", "/", "~0", "~").Replace(pointer)
		value, there := pod.Annotations[key]
		switch {
		case !there, s.Op == "test" && value != *s.Value:
			return failedTest
		case s.Op == "replace":
			pod.Annotations[key] = *s.Value
		case s.Op == "remove":
			delete(pod.Annotations, key)
		case s.Op != "test":
			return apierrors.NewBadRequest("op " + s.Op + " not implemented")
		}
	}
	return nil
}
