package bench_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// patcher annotates pods in the daemon's stead, from the API server's side: with the annotation off the API server then has
// the same work, on the same processors, as with it on, and what is left of the difference is the node's own.
type patcher struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	open int // patches that are not answered yet
}

// patcherVar makes this test's program a patcher: the administrator's kubeconfig.
const patcherVar = "BENCH_PATCHER"

func (w *world) patcher() *patcher {
	w.b.Helper()
	path, _ := w.APIServer()
	ns, err := netlab.Open(path)
	check(w.b, err)
	cmd, err := helper(patcherVar, w.UserConfig(account.Admin))
	check(w.b, err)
	p := &patcher{cmd: cmd}
	p.in, err = cmd.StdinPipe()
	check(w.b, err)
	out, err := cmd.StdoutPipe()
	check(w.b, err)
	p.out = bufio.NewReader(out)
	check(w.b, ns.Start(cmd))
	w.b.Cleanup(func() { check(w.b, errors.Join(p.in.Close(), cmd.Wait(), ns.Close())) })
	return p
}

// patch has a pod annotated, and does not wait for it.
func (p *patcher) patch(b *testing.B, of pod) {
	b.Helper()
	_, err := fmt.Fprintln(p.in, of.name, of.uid)
	check(b, err)
	p.open++
}

// settle waits until all patches are answered.
func (p *patcher) settle(b *testing.B) {
	b.Helper()
	for ; p.open > 0; p.open-- {
		_, err := p.out.ReadString('\n')
		check(b, err)
	}
}

// bePatcher is that process: it reads a pod's name and UID on each line, patches as the daemon does, all at once, and writes a
// line for each answer.
func bePatcher(kubeconfig string) error {
	client, err := podapi.FromKubeconfig(kubeconfig)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var name, uid string
		if _, err := fmt.Sscan(lines.Text(), &name, &uid); err != nil {
			return fmt.Errorf("read pod %q: %w", lines.Text(), err)
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": uid, "annotations": map[string]string{"bench.example.com/pod-ips": "10.0.0.1"},
		}})
		if err != nil {
			return err
		}
		go func() {
			at := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name}
			_, err := client.Patch(context.Background(), at, "", podapi.Patch{Type: types.MergePatchType, Body: body})
			if err != nil {
				failed <- err
				return
			}
			fmt.Println("patched")
		}()
		select {
		case err := <-failed:
			return err
		default:
		}
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
