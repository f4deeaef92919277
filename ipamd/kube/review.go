package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// What the API server adds to the user of a token that is bound to a pod. Source: apiserver's pkg/authentication/serviceaccount.
const (
	extraPod  = "authentication.kubernetes.io/pod-name"
	extraUID  = "authentication.kubernetes.io/pod-uid"
	extraNode = "authentication.kubernetes.io/node-name" // from Kubernetes 1.30 on
	account   = "system:serviceaccount:"                 // then namespace, colon, name
)

// Identity is whom the API server takes this client for.
type Identity struct {
	User string
	Node string                 // that the token is bound to; "" for none
	Pod  corev1.ObjectReference // that the token is bound to; its name is "" for none
}

// WhoAmI asks the server whom it takes this client for. Every authenticated user may ask.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) {
	review := authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"},
	}
	if err := c.review(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review); err != nil {
		return Identity{}, fmt.Errorf("ask who this is: %w", err)
	}
	user := review.Status.UserInfo
	extra := func(key string) string {
		if len(user.Extra[key]) == 0 {
			return ""
		}
		return user.Extra[key][0]
	}
	identity := Identity{User: user.Username, Node: extra(extraNode)}
	namespace, _, isAccount := strings.Cut(strings.TrimPrefix(user.Username, account), ":")
	if name := extra(extraPod); name != "" && isAccount {
		identity.Pod = corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(extra(extraUID)),
		}
	}
	return identity, nil
}

// MayPods asks the server whether this account may do something to the pods of all namespaces. It tells RBAC only: an
// admission policy may refuse all the same (RehearseAnnotations).
func (c *Client) MayPods(ctx context.Context, verb string) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "pods"},
		},
	}
	if err := c.review(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review); err != nil {
		return false, fmt.Errorf("review access to pods: %w", err)
	}
	return review.Status.Allowed, nil
}

// review sends a review and reads the answer into it. Raw JSON, because the client's scheme holds core/v1 only.
func (c *Client) review(ctx context.Context, path string, review any) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	body, err := json.Marshal(review)
	if err != nil {
		return fmt.Errorf("encode review: %w", err)
	}
	var answer []byte
	err = c.around.do("review create", func() error {
		answer, err = c.core.Post().AbsPath(path).
			SetHeader("Content-Type", runtime.ContentTypeJSON).SetHeader("Accept", runtime.ContentTypeJSON).
			MaxRetries(0).Body(body).DoRaw(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, review); err != nil {
		return fmt.Errorf("decode review: %w", err)
	}
	return nil
}

// RehearseAnnotations sends the patch that would set annotations on the pod, as a dry run: permissions and admission judge it
// as they would the real one, and nothing is written. Source: Kubernetes' API concepts, "Dry-run". Refused is the server's
// words where it would not take the patch; the error says why the answer is not known.
func (c *Client) RehearseAnnotations(ctx context.Context, pod corev1.ObjectReference, annotations map[string]string) (refused string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return "", fmt.Errorf("encode merge patch: %w", err)
	}
	err = c.around.do("review rehearse", func() error {
		return c.core.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
			Param("timeout", serverTimeout).Param("fieldManager", fieldManager).Param("dryRun", metav1.DryRunAll).
			MaxRetries(0).Body(body).Do(ctx).Error()
	})
	switch {
	case err == nil:
		return "", nil
	case refuses(err):
		return err.Error(), nil
	}
	return "", fmt.Errorf("rehearse patch of pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// refuses tells an answer that the real patch would get, too. Reason BadRequest is what the server says of a webhook that
// takes no dry runs; a webhook that refuses gives its own code and, unless it has one, no reason.
func refuses(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch status := answer.Status(); status.Code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	case http.StatusBadRequest:
		return status.Reason != metav1.StatusReasonBadRequest
	default:
		return status.Code > http.StatusBadRequest && status.Code < http.StatusInternalServerError
	}
}
