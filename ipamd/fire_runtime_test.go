package ipamd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// What kubelet and a container runtime do around the plugin. All but begin may be called from any goroutine.

// begin makes a pod in the API and its sandbox.
func (f *fire) begin(name string) *guest {
	f.t.Helper()
	g, err := f.tryBegin(name)
	f.check(err)
	return g
}

func (f *fire) tryBegin(name string) (*guest, error) {
	f.mu.Lock()
	f.serial++
	id := fmt.Sprintf("%s-%d", name, f.serial)
	f.mu.Unlock()
	object := kubetest.Pod(f.namespace, id, f.nodeName)
	if err := f.admin.Create(context.Background(), object); err != nil {
		return nil, err
	}
	return f.sandboxOf(object, id)
}

// sandboxOf makes a sandbox of a pod.
func (f *fire) sandboxOf(object *corev1.Pod, id string) (*guest, error) {
	ns, err := netlab.New(filepath.Join(f.dir, "pods", id))
	if err != nil {
		return nil, err
	}
	return &guest{object: object, pod: &pod{ns: ns, conf: runtimeConf(id, ns.Path(), [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", object.Namespace}, {"K8S_POD_NAME", object.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", id}, {"K8S_POD_UID", string(object.UID)}, {crashVar, f.dir},
	})}}, nil
}

func runtimeConf(id, netns string, args [][2]string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: netns, IfName: "eth0", Args: args}
}

// add is ADD. Its result must name an address that no other sandbox has.
func (f *fire) add(g *guest) error {
	life := f.life.Load()
	if err := f.tryAdd(g.pod); err != nil {
		return f.struck(life, err)
	}
	id := g.conf.ContainerID
	f.mu.Lock()
	if other := f.holders[g.addr]; other != "" {
		f.t.Errorf("%s is given to %s and to %s", g.addr, other, id)
	}
	f.holders[g.addr], f.live[id] = id, g
	f.mu.Unlock()
	status := g.object.DeepCopy() // as kubelet, later
	status.Status.PodIP, status.Status.PodIPs = g.addr.String(), []corev1.PodIP{{IP: g.addr.String()}}
	return f.admin.Status().Patch(context.Background(), status, client.MergeFrom(g.object))
}

// forget notes that a sandbox ends.
func (f *fire) forget(g *guest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[g.conf.ContainerID] == g {
		delete(f.live, g.conf.ContainerID)
		delete(f.holders, g.addr)
	}
	f.past = append(f.past, g)
}

// endAttempts bounds DELs of one sandbox: only a plugin that was killed makes another one needed.
const endAttempts = 5

// end is DEL until it succeeds, then the sandbox goes. The object in the API stays until sweep.
func (f *fire) end(g *guest) error {
	f.forget(g)
	var errs []error
	for range endAttempts {
		err := f.tryDel(g.pod)
		if err == nil {
			return g.ns.Close()
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("DEL %s: %w", g.conf.ContainerID, errors.Join(errs...))
}

// sweep deletes the objects of pods that have ended.
func (f *fire) sweep() error {
	f.mu.Lock()
	past := f.past
	f.past = nil
	f.mu.Unlock()
	for _, g := range past {
		err := f.admin.Delete(context.Background(), g.object, client.GracePeriodSeconds(0))
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// pass starts and ends a pod. An ADD that fails although nobody was killed is an error.
func (f *fire) pass(name string) error {
	g, err := f.tryBegin(name)
	if err != nil {
		return err
	}
	return errors.Join(f.add(g), f.end(g))
}

// churn starts and ends pods beside what the test does, until stop is called: see turn.
func (f *fire) churn() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond) // while nobody answers, no faster than a kubelet
		defer tick.Stop()
		for n := 0; ctx.Err() == nil && failed == nil; n++ {
			failed = unexplained(f.turn(n))
			<-tick.C
		}
	})
	return func() error {
		cancel()
		running.Wait()
		return failed
	}
}

// turn starts and ends a pod. Every third is deleted in the API first, and of those whose ADD failed every other sandbox just
// goes, as if the runtime had been killed too.
func (f *fire) turn(n int) error {
	g, err := f.tryBegin("churn")
	if err != nil {
		return err
	}
	added := f.add(g)
	if n%3 == 2 {
		if err := f.admin.Delete(context.Background(), g.object, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
	}
	if added != nil && n%2 == 1 {
		f.forget(g)
		return errors.Join(added, g.ns.Close())
	}
	return errors.Join(added, f.end(g))
}

// plugin runs the plugin with a command that this configuration's version does not have.
func (f *fire) plugin(command, more string) error {
	cmd := exec.Command(filepath.Join(f.bin, "aws-cni"))
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_PATH=" + f.bin, "CNI_ARGS=IgnoreUnknown=1;" + crashVar + "=" + f.dir}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.1.0","name":"aws-cni","type":"aws-cni","socket":%q%s}`, f.socket(), more))
	var output bytes.Buffer
	cmd.Stdout = &output
	life := f.life.Load()
	if err := f.node.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return f.struck(life, fmt.Errorf("%s: %w: %s", command, err, output.String()))
	}
	return nil
}

// collect is GC with all sandboxes that live.
func (f *fire) collect() error {
	f.mu.Lock()
	var valid []string
	for id := range f.live {
		valid = append(valid, fmt.Sprintf(`{"containerID":%q,"ifname":"eth0"}`, id))
	}
	f.mu.Unlock()
	slices.Sort(valid)
	return f.plugin("GC", `,"cni.dev/valid-attachments":[`+strings.Join(valid, ",")+"]")
}

// user is the daemon's name at the API server.
func (f *fire) user() string { return "system:serviceaccount:" + f.namespace + ":" + f.nodeName }

// token makes the daemon's service account and pod and gives a token of theirs.
func (f *fire) token() string {
	f.t.Helper()
	account := kubetest.Account(f.namespace, f.nodeName)
	f.check(f.admin.Create(f.t.Context(), account))
	pod := kubetest.Pod(f.namespace, f.nodeName, f.nodeName)
	pod.Spec.ServiceAccountName, pod.Spec.HostNetwork = f.nodeName, true
	f.check(f.admin.Create(f.t.Context(), pod))
	token, err := kubetest.Token(f.t.Context(), f.admin, account, pod)
	f.check(err)
	return token
}

// grant gives the daemon what it needs of the API; the right to patch pods can be taken away.
func (f *fire) grant() {
	f.t.Helper()
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	role.Name = f.nodeName
	f.check(f.admin.Create(f.t.Context(), role))
	patcher := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}}}
	patcher.Name = f.nodeName + "-patch"
	f.check(f.admin.Create(f.t.Context(), patcher))
	f.check(f.bind(f.nodeName))
	f.check(f.bind(patcher.Name))
	f.await("permission", func() bool { return f.permitted() })
}

func (f *fire) binding(role string) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: f.user()}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	binding.Name = role
	return binding
}

func (f *fire) bind(role string) error {
	return client.IgnoreAlreadyExists(f.admin.Create(context.Background(), f.binding(role)))
}

// permitted tells whether the daemon may patch pods by now: the server learns of bindings a moment later.
func (f *fire) permitted() bool {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: f.user(), ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods"},
	}}
	return f.admin.Create(context.Background(), review) == nil && review.Status.Allowed
}
