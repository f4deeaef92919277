package policygate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/event"
)

func TestReadersOfThreeKindsDiffer(t *testing.T) {
	reader := Reader{Keys: []string{AWSPodIPs, "example.com/ip"}}
	tests := []struct {
		name        string
		annotations map[string]string
		status      corev1.PodStatus
		deleted     bool
		want        map[string]view
	}{
		{name: "nothing", want: map[string]view{Calico: {}, Strict: {}, StatusOnly: {}}},
		{name: "a key alone", annotations: map[string]string{AWSPodIPs: "10.0.0.5"},
			want: map[string]view{Calico: {"10.0.0.5", AWSPodIPs}, Strict: {"10.0.0.5", AWSPodIPs}, StatusOnly: {}}},
		{name: "the status is older", annotations: map[string]string{"example.com/ip": "10.0.0.5"}, status: corev1.PodStatus{PodIP: "10.0.0.1"},
			want: map[string]view{Calico: {"10.0.0.1", "status.podIP"}, Strict: {"10.0.0.5", "example.com/ip"}, StatusOnly: {"10.0.0.1", "status.podIP"}}},
		{name: "finished, and still named", annotations: map[string]string{AWSPodIPs: "10.0.0.5"}, status: corev1.PodStatus{PodIP: "10.0.0.5", Phase: corev1.PodSucceeded},
			want: map[string]view{Calico: {}, Strict: {"10.0.0.5", AWSPodIPs}, StatusOnly: {}}},
		{name: "the network is over, the status does not know", annotations: map[string]string{AWSPodIPs: ""}, status: corev1.PodStatus{PodIP: "10.0.0.5"}, deleted: true,
			want: map[string]view{Calico: {}, Strict: {}, StatusOnly: {"10.0.0.5", "status.podIP"}}},
		{name: "a list", annotations: map[string]string{AWSPodIPs: "10.0.0.5,10.0.0.6"},
			want: map[string]view{Calico: {"10.0.0.5,10.0.0.6", AWSPodIPs}, Strict: {"10.0.0.5,10.0.0.6", AWSPodIPs}, StatusOnly: {}}},
		{name: "what Calico cannot read it does not change", annotations: map[string]string{AWSPodIPs: "nonsense"},
			want: map[string]view{Strict: {"nonsense", AWSPodIPs}, StatusOnly: {}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}, Status: test.status}
			if test.deleted {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			if diff := cmp.Diff(test.want, viewsOf(reader, pod), cmp.AllowUnexported(view{})); diff != "" {
				t.Errorf("views (-want +got):\n%s", diff)
			}
		})
	}
}

// A gate that is asked to tells of views as they change, and of their end.
func TestViewsAreToldWhenTheyChange(t *testing.T) {
	told := make(events, 16)
	g := New(Options{Node: "node", Views: true, All: Reader{Keys: []string{AWSPodIPs}}, Events: event.NewLog(told)}, nil)
	p := pod(oneName, "u1", oneAddr.String())
	p.ResourceVersion = "7"
	g.take(sighting{pod: p})
	g.take(sighting{pod: p})
	g.take(sighting{pod: p, gone: true})
	var got []string
	for len(told) > 0 {
		e := <-told
		got = append(got, e.Reader+" "+e.Address+" "+e.Version)
	}
	address := oneAddr.String()
	want := []string{Calico + " " + address + " 7", Strict + " " + address + " 7", Calico + "  7", Strict + "  7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
