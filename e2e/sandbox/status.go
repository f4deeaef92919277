package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/podapi"
)

// StatusDelayKey is an annotation by which a test sets a pod's own status delay, as a duration: hours stand for a kubelet
// that never gets round to it.
const StatusDelayKey = "sandbox.vpc-cni.test/status-delay"

func (a *Agent) statusDelay(l *life) time.Duration {
	if own, err := time.ParseDuration(l.pod.Annotations[StatusDelayKey]); err == nil {
		return own
	}
	return a.options.StatusDelay.of(a.options.Seed, l.name())
}

// of draws a pod's delay. It depends on the seed and the pod's name only, not on the order in which pods come.
func (d Delay) of(seed uint64, pod types.NamespacedName) time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(pod.String())) // a hash takes every write
	random := rand.New(rand.NewPCG(seed, hash.Sum64()))
	return d.Min + time.Duration(random.Int64N(int64(d.Max-d.Min)))
}

// preStop is how long the pod's containers take to stop: the longest preStop sleep. Any other hook takes no time here.
func preStop(pod *corev1.Pod) time.Duration {
	var longest time.Duration
	for _, c := range pod.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
			longest = max(longest, time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
		}
	}
	return longest
}

// report is what kubelet says of a pod that runs.
type report struct {
	Host, Address netip.Addr
	At            time.Time
}

// postStatus tells the API that the pod runs. A pod of that name with another UID is left alone.
func postStatus(ctx context.Context, api API, pod *corev1.Pod, r report) error {
	at := metav1.NewTime(r.At)
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &at,
		HostIP: r.Host.String(), HostIPs: []corev1.HostIP{{IP: r.Host.String()}},
		PodIP: r.Address.String(), PodIPs: []corev1.PodIP{{IP: r.Address.String()}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	yes := true
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	_, err = api.Patch(ctx, name, "status", podapi.Patch{Type: types.MergePatchType, Body: body})
	return err
}

// ParseDelay reads a range "MIN-MAX", or one duration for both.
func ParseDelay(text string) (Delay, error) {
	least, most, isRange := strings.Cut(text, "-")
	if !isRange {
		most = least
	}
	var d Delay
	var err, err2 error
	d.Min, err = time.ParseDuration(least)
	d.Max, err2 = time.ParseDuration(most)
	if err := errors.Join(err, err2); err != nil {
		return Delay{}, fmt.Errorf("read delay %q: want MIN-MAX, as in 100ms-1400ms: %w", text, err)
	}
	if d.Min < 0 || d.Max < d.Min {
		return Delay{}, fmt.Errorf("read delay %q: the second must not be less than the first", text)
	}
	return d, nil
}

func (d Delay) String() string { return d.Min.String() + "-" + d.Max.String() }
