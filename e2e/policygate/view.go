package policygate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpc-cni/vpc-cni/e2e/event"
)

// The kinds of readers whose views are told of.
const (
	// Calico reads as Calico does: its order of trust, and its rule of when a pod's network is over.
	Calico = "calico"
	// Strict takes the raw string of the first key that has one, unsplit, and nothing else: neither status nor phase nor
	// deletion. It is what the network policy controller for Amazon VPC falls back to, taken alone.
	Strict = "strict"
	// StatusOnly knows what kubelet wrote, of pods that are not over by their phase.
	StatusOnly = "status"
)

// StatusSource begins the source of a view that rests on kubelet's word.
const StatusSource = "status."

// view is what a reader takes for a pod's addresses, and where from.
type view struct{ address, source string }

// viewsOf are all readers' views of a pod; a reader that cannot read it is missing: what it knew stays.
func viewsOf(r Reader, pod *corev1.Pod) map[string]view {
	views := map[string]view{Strict: {}, StatusOnly: {}}
	if pod.Spec.HostNetwork {
		views[Calico] = view{}
		return views
	}
	for _, key := range r.Keys {
		if value := pod.Annotations[key]; value != "" {
			views[Strict] = view{value, key}
			break
		}
	}
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if ip := pod.Status.PodIP; ip != "" && !over {
		views[StatusOnly] = view{ip, "status.podIP"}
	}
	if r.Finished(pod) {
		views[Calico] = view{}
		return views
	}
	if addresses, err := r.Addresses(pod); err == nil {
		source, _ := r.items(pod)
		var texts []string
		for _, address := range addresses {
			texts = append(texts, address.Addr().String())
		}
		views[Calico] = view{strings.Join(texts, ","), source}
	}
	return views
}

// readers in the order in which their views are told.
var readers = []string{Calico, Strict, StatusOnly}

// look tells of every view that a sighting changes.
func (g *Gate) look(s sighting) {
	if !g.options.Views {
		return
	}
	now := map[string]view{Calico: {}, Strict: {}, StatusOnly: {}}
	if !s.gone {
		now = viewsOf(g.options.All, s.pod)
	}
	was := g.views[s.pod.UID]
	if was == nil {
		was = map[string]view{}
		g.views[s.pod.UID] = was
	}
	for _, reader := range readers {
		v, readable := now[reader]
		if !readable || v == was[reader] {
			continue
		}
		was[reader] = v
		g.emit(event.Event{Kind: event.View, Reader: reader, Address: v.address, Source: v.source, Version: s.pod.ResourceVersion},
			podKey{s.pod.Namespace, s.pod.Name}, s.pod.UID)
	}
	if s.gone {
		delete(g.views, s.pod.UID)
	}
}
