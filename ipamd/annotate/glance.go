package annotate

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Pods is a watch of this node's pods. What it shows may be late, never wrong for its resource version.
type Pods interface {
	// Pod gives the pod of that name as last seen, nil if there is none. It is not to be changed.
	Pod(namespace, name string) *corev1.Pod
	// Synced is closed once every pod of the node was seen.
	Synced() <-chan struct{}
}

// noPods is the watch of a writer that has none.
type noPods struct{}

func (noPods) Pod(string, string) *corev1.Pod { return nil }
func (noPods) Synced() <-chan struct{}        { return nil }

// glance gives the task's pod as the watch shows it, nil where it shows none, or another, or where this writer knows newer. It
// teaches the UID of a static pod's mirror. Without a UID of the record's own it is nothing: a name alone may be another pod's.
func (r *run) glance() *corev1.Pod {
	own := r.record.Pod.UID
	pod := r.w.pods.Pod(r.record.Pod.Namespace, r.record.Pod.Name)
	if pod == nil || own == "" || version(pod) < r.floor || !r.owns(pod) {
		return nil
	}
	return pod
}

// version is the pod's resource version as a number, 0 where it is none. They grow with each write, by Kubernetes' own rule
// since 1.35, and by etcd's revisions always.
func version(pod *corev1.Pod) uint64 {
	n, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// shows tells whether the pod has all annotations as wanted.
func shows(pod *corev1.Pod, wanted []annotation) bool {
	for _, a := range wanted {
		if value, there := pod.Annotations[a.key]; !there || value != a.value {
			return false
		}
	}
	return true
}

func keysOf(list []annotation) []string {
	keys := make([]string, 0, len(list))
	for _, a := range list {
		keys = append(keys, a.key)
	}
	return keys
}

// value is what the record wants under the key.
func (w *Writer) value(record pool.Annotation, key string) string {
	if w.joined[key] {
		return joined(record)
	}
	return record.Addr.String()
}

func (w *Writer) wanted(record pool.Annotation, keys []string) []annotation {
	list := make([]annotation, 0, len(keys))
	for _, key := range keys {
		list = append(list, annotation{key, w.value(record, key)})
	}
	return list
}

// owned tells whether the value is the record's, in whichever form: the key's form may have been another one when it was
// written.
func (w *Writer) owned(record pool.Annotation, value string) bool {
	return value == record.Addr.String() || len(record.More) > 0 && value == joined(record)
}

// joined is all of a record's addresses.
func joined(record pool.Annotation) string {
	list := []string{record.Addr.String()}
	for _, addr := range record.More {
		list = append(list, addr.String())
	}
	return strings.Join(list, ",")
}
