package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the shipped roles give the account, by namespace: each verb is one that ipamd/kube uses (Get, List, the watch of this
// node's pods, Patch; events are created, and patched to count up).
func TestShippedRolesGrantNoMoreThanIsUsed(t *testing.T) {
	c := newCluster(t)
	c.apply(files(t)...)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "any-"}}
	c.create(namespace)
	user := c.account(c.daemonPod(hereNode))
	const pods = "get list patch watch pods"
	for namespace, want := range map[string][]string{
		"default": {"create patch events", pods}, system: {"create patch events", pods}, namespace.Name: {pods},
	} {
		c.until(fmt.Sprintf("%s may %v in %s and no more", daemon, want, namespace), func() bool {
			got, err := user.rights(namespace)
			return err == nil && slices.Equal(got, want)
		})
	}
}

// rights are what the user may do with the core group's resources in a namespace, one line for each.
func (u *user) rights(namespace string) ([]string, error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	if err := u.Create(u.t.Context(), review); err != nil {
		return nil, err
	}
	verbs := map[string][]string{}
	for _, rule := range review.Status.ResourceRules {
		if slices.Contains(rule.APIGroups, "") || slices.Contains(rule.APIGroups, "*") {
			for _, resource := range rule.Resources {
				verbs[resource] = append(verbs[resource], rule.Verbs...)
			}
		}
	}
	var lines []string
	for resource, all := range verbs {
		slices.Sort(all)
		lines = append(lines, strings.Join(slices.Compact(all), " ")+" "+resource)
	}
	slices.Sort(lines)
	return lines, nil
}
