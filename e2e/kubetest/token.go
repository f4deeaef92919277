package kubetest

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Token asks the server for a token of a service account, as kubelet does for a pod's projected volume. It is bound to the pod,
// whose node it then names; nil binds it to nothing.
func Token(ctx context.Context, admin client.Client, account *corev1.ServiceAccount, pod *corev1.Pod) (string, error) {
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	if err := admin.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("request token of %s/%s: %w", account.Namespace, account.Name, err)
	}
	return request.Status.Token, nil
}

// Account is a service account.
func Account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
