package badday_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
)

// refuser makes the API server refuse the daemons' writes, in two ways, by the administrator's means alone.
type refuser struct {
	user, roleName  string
	admission, rbac *rest.RESTClient
	asDaemon        *rest.RESTClient // core/v1, as the daemons' user

	rules []rbacv1.PolicyRule // of the role, as it was before it was taken away

	role, policy refusal
}

// refusal is a way to refuse: it is turned on and off.
type refusal func(ctx context.Context, on bool) error

func newRefuser(config *rest.Config, info cluster.Info) (*refuser, error) {
	client := func(config *rest.Config, path string, version schema.GroupVersion) (*rest.RESTClient, error) {
		config = rest.CopyConfig(config)
		config.APIPath, config.GroupVersion = path, &version
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		return rest.RESTClientFor(config)
	}
	daemon := rest.CopyConfig(config)
	// The policies let a daemon change pods of its token's node alone.
	daemon.Impersonate = rest.ImpersonationConfig{
		UserName: info.DaemonUser, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {info.Nodes[0].Name}},
	}
	r := &refuser{user: info.DaemonUser, roleName: info.DaemonRole}
	var errs [3]error
	r.admission, errs[0] = client(config, "/apis", admissionv1.SchemeGroupVersion)
	r.rbac, errs[1] = client(config, "/apis", rbacv1.SchemeGroupVersion)
	r.asDaemon, errs[2] = client(daemon, "/api", corev1.SchemeGroupVersion)
	r.role, r.policy = r.setRole, r.setPolicy
	return r, errors.Join(errs[:]...)
}

// setRole takes the rules that let patch pods from the daemons' role, or gives them back.
func (r *refuser) setRole(ctx context.Context, on bool) error {
	role := &rbacv1.ClusterRole{}
	if err := r.rbac.Get().Resource("clusterroles").Name(r.roleName).Do(ctx).Into(role); err != nil {
		return fmt.Errorf("read role of the daemons: %w", err)
	}
	if on {
		r.rules = slices.Clone(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "patch")
		})
	} else {
		role.Rules = r.rules
	}
	if err := r.rbac.Put().Resource("clusterroles").Name(r.roleName).Body(role).Do(ctx).Error(); err != nil {
		return fmt.Errorf("change role of the daemons: %w", err)
	}
	return nil
}

// setPolicy makes an admission policy that refuses every change of a pod by the daemons, or takes it away.
func (r *refuser) setPolicy(ctx context.Context, on bool) error {
	const policies, bindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
	meta := metav1.ObjectMeta{Name: "bad-day"}
	if !on {
		return errors.Join(
			r.admission.Delete().Resource(bindings).Name(meta.Name).Do(ctx).Error(),
			r.admission.Delete().Resource(policies).Name(meta.Name).Do(ctx).Error(),
		)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "request.userInfo.username != '" + r.user + "'", Message: "not on a bad day"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	return errors.Join(
		r.admission.Post().Resource(policies).Body(policy).Do(ctx).Error(),
		r.admission.Post().Resource(bindings).Body(binding).Do(ctx).Error(),
	)
}

func (r *refuser) begin(ctx context.Context, how refusal, pod string) error {
	return errors.Join(how(ctx, true), r.until(ctx, true, pod))
}

func (r *refuser) end(ctx context.Context, how refusal, pod string) error {
	return errors.Join(how(ctx, false), r.until(ctx, false, pod))
}

// until waits until the server does what it was told: it takes up roles and policies a little later. It is asked by a change
// that it does not carry out.
func (r *refuser) until(ctx context.Context, refused bool, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, eventually)
	defer cancel()
	for {
		err := r.asDaemon.Patch(types.MergePatchType).Namespace(metav1.NamespaceDefault).Resource("pods").Name(pod).
			Param("dryRun", metav1.DryRunAll).Body([]byte(`{"metadata":{"annotations":{"` + awsKey + `":"::1"}}}`)).Do(ctx).Error()
		is := apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
		if err != nil && !is {
			return fmt.Errorf("ask whether the daemons are refused: %w", err)
		}
		if is == refused {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait until the daemons are refused (%t): %w", refused, err)
		}
	}
}
