package apiserver

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/vpc-cni/vpc-cni/e2e/account"
)

// rules are what a user may do.
func rules(user account.User) []rbacv1.PolicyRule {
	core := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
	}
	switch user {
	case account.IPAMD:
		return []rbacv1.PolicyRule{
			core("pods", "get", "list", "watch", "patch"),
			core("nodes", "get"),
			core("events", "create", "patch"),
		}
	case account.Sandbox:
		return []rbacv1.PolicyRule{
			core("pods", "get", "list", "watch", "delete"), core("pods/status", "patch"),
			core("nodes", "get", "create"), core("nodes/status", "patch"),
		}
	case account.PolicyGate:
		return []rbacv1.PolicyRule{core("pods", "get", "list", "watch")}
	default:
		return nil
	}
}

// grant makes a ClusterRole and its binding for every user but the administrator.
func grant(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &rbacv1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return fmt.Errorf("make RBAC client: %w", err)
	}
	for _, user := range account.Limited() {
		meta := metav1.ObjectMeta{Name: user.Name()}
		role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules(user)}
		if err := client.Post().Resource("clusterroles").Body(role).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create role of %s: %w", user, err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user.Name()},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user.Name()}},
		}
		if err := client.Post().Resource("clusterrolebindings").Body(binding).Do(ctx).Error(); err != nil {
			return fmt.Errorf("bind role of %s: %w", user, err)
		}
	}
	return nil
}
