package annotate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodAPI is the part of the Kubernetes API that annotations need. Errors are apimachinery's *errors.StatusError where the
// server answered.
type PodAPI interface {
	// Patch sends one patch of the given type (merge patch or JSON patch) to the pod.
	Patch(ctx context.Context, namespace, name string, kind types.PatchType, body []byte) (*corev1.Pod, error)
	// Get reads one pod from the server.
	Get(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// List reads this node's pods from the server.
	List(ctx context.Context) ([]corev1.Pod, error)
}
