package apiserver_test

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/apiserver"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func TestUsersMayDoWhatTheyNeedAndNoMore(t *testing.T) {
	dir := t.TempDir()
	server, err := apiserver.Start(apiserver.Options{
		Address: netip.MustParseAddrPort("127.0.0.1:6443"), Dir: dir, Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	if err := server.Kubeconfigs(ctx); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for _, user := range account.Limited() {
		client, err := podapi.FromKubeconfig(account.Kubeconfig(dir, user))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.List(ctx, "node-a"); err != nil {
			t.Errorf("%s cannot list pods: %v", user, err)
		}
		if _, err := client.Create(ctx, pod); !errors.IsForbidden(err) {
			t.Errorf("%s creates a pod: error %v, want forbidden", user, err)
		}
	}
	admin, err := podapi.FromKubeconfig(account.Kubeconfig(dir, account.Admin))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Create(ctx, pod); err != nil {
		t.Errorf("the administrator cannot create a pod: %v", err)
	}
}
