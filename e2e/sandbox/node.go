package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/podapi"
)

// Registry is where a node registers itself.
type Registry interface {
	CreateNode(ctx context.Context, node *corev1.Node) error
	PatchNodeStatus(ctx context.Context, name string, patch podapi.Patch) error
}

// register makes the node's object, not ready: a kubelet without a network configuration is not.
func register(ctx context.Context, api Registry, name string, address netip.Addr) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64",
		},
	}}
	if err := api.CreateNode(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return patchNode(ctx, api, name, corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: address.String()},
			{Type: corev1.NodeHostName, Address: name},
		},
		Conditions: []corev1.NodeCondition{readiness(corev1.ConditionFalse, "KubeletNotReady", "no network configuration yet")},
	})
}

// markReady reports that the node can run pods.
func markReady(ctx context.Context, api Registry, name string) error {
	return patchNode(ctx, api, name, corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{readiness(corev1.ConditionTrue, "KubeletReady", "the network configuration is there")},
	})
}

func readiness(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
	now := metav1.NewTime(time.Now())
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

func patchNode(ctx context.Context, api Registry, name string, status corev1.NodeStatus) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode status of node %s: %w", name, err)
	}
	return api.PatchNodeStatus(ctx, name, podapi.Patch{Type: types.StrategicMergePatchType, Body: body})
}
