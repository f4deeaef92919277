// The file comes first in the alphabet: its first test waits for half a minute, while others run beside it.

package ipamd_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/install"
)

// confirm is the plugin's done with a deadline of its own.
func (w *world) confirm(client *api.Client, key api.Attachment, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	return client.Done(ctx, api.DoneRequest{Attachment: key})
}

// vanish takes the sandbox away as a reboot of its runtime may: no DEL.
func (w *world) vanish(p *pod) {
	w.t.Helper()
	w.check(p.ns.Close())
}

// B8 and more: the runtime was killed after ADD's result and before its own record, the plugin after its done, done was not
// answered in time, and ten ADDs died with their runtime: no DEL comes for those sandboxes. Two audits find that their veths
// are gone (one, where the pod has a newer sandbox); nothing of them is left anywhere.
func TestB8DELThatNeverComesIsMadeUpForByEvidence(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true)
	a.start()
	live := a.running("live")

	unrecorded := a.running("unrecorded")
	a.forget(unrecorded)
	a.reads("unrecorded", unrecorded.addr.String())

	old := a.running("web") // its pod gets a newer sandbox
	a.forget(old)
	a.vanish(old)
	again := a.newer(old, "web-again")
	a.check(a.tryAdd(again))

	killed := a.pod("killed")
	client, key, recipe := a.begin(killed)
	a.build(killed, recipe)
	a.check(a.confirm(client, key, patience))
	a.check(client.Close())

	frozen := a.pod("frozen")
	client, key, recipe = a.begin(frozen)
	a.build(frozen, recipe)
	a.freeze(a.daemon.Process)
	if err := a.confirm(client, key, time.Second); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("done to a frozen daemon: %v", err)
	}
	a.tear(frozen)
	a.check(client.Close())
	a.check(a.daemon.Process.Signal(syscall.SIGCONT))
	a.reads("killed", killed.addr.String())

	a.vanish(unrecorded)
	a.vanish(killed)
	a.killRuntime()
	a.await("the kernel is done with the namespaces", func() bool { return strings.Count(a.run("ip", "-br", "link"), "eni") == 2 })
	_ = a.end(syscall.SIGKILL) // the first audit is at the start
	a.start()
	a.steady(live, again)
	for _, name := range []string{"unrecorded", "killed"} {
		a.reads(name, "")
	}
}

// What else ends such a sandbox needs no audit: GC, and a DEL after all.
func TestDELThatNeverComesIsMadeUpForAtOnce(t *testing.T) {
	t.Parallel()
	a := newAnnotated(t, true, "IP_COOLDOWN_PERIOD=0")
	a.start()
	live := a.running("live")

	swept := a.running("swept")
	a.forget(swept)
	a.reads("swept", swept.addr.String())
	a.check(a.gc(live))
	a.assigned("2") // its veth stands: the address is no other pod's yet
	other := a.running("other")
	if other.addr == swept.addr {
		t.Errorf("%s is given out while its veth stands", swept.addr)
	}
	a.within(soon, "a swept sandbox's end", func() { a.vanish(swept); a.del(swept); a.assigned("2") })
	a.reads("swept", "")

	late := a.running("late")
	a.forget(late)
	a.reads("late", late.addr.String())
	a.del(late)
	a.within(soon, "a late DEL", func() { a.assigned("2") })
	a.reads("late", "")
	for _, p := range []*pod{live, other} {
		a.live(p)
		a.reads(p.conf.Args[2][1], p.addr.String())
	}
}

// The daemon is killed after the save of done and before its answer: the plugin undoes its work, and the runtime's DEL ends
// what the daemon believes to be done.
func TestDoneThatWasSavedAndNotAnswered(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t, true, "ANNOTATE_POD_IP=true", "ANNOTATE_POD_IP_WAIT=9s")
	kubeconfig := filepath.Join(w.dir, "kubeconfig")
	w.check(os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"http://10.0.255.99:8080"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600))
	w.env = append(w.env, "KUBECONFIG="+kubeconfig)
	w.start()
	p := w.sandbox("p")
	client, key, recipe := w.begin(p)
	w.build(p, recipe)
	answered := make(chan error, 1)
	go func() { answered <- w.confirm(client, key, patience) }()
	w.await("done is saved", func() bool {
		text, err := os.ReadFile(w.statePath())
		return err == nil && strings.Contains(string(text), `"done":true`)
	})
	_ = w.end(syscall.SIGKILL)
	if err := <-answered; err == nil {
		t.Error("done was answered")
	}
	w.tear(p)
	w.start()
	w.assigned("1") // one audit is no evidence: a route may be missing for a moment
	w.within(soon, "DEL", func() { w.del(p); w.assigned("0") })
}

// killRuntime makes ten ADDs of a runtime that is killed, and with it some of the plugins, at any moment; others go on and
// find nobody to print their result to. A new runtime knows none of the sandboxes; it deletes some, and tears all down.
func (a *annotated) killRuntime() {
	a.t.Helper()
	rng := rand.New(rand.NewPCG(8, 590))
	var pods []*pod
	var plugins []*exec.Cmd
	for i := range 10 {
		p := a.pod("p" + strconv.Itoa(i))
		pods = append(pods, p)
		plugins = append(plugins, a.exec(p, "ADD"))
	}
	for _, i := range rng.Perm(len(plugins)) {
		if rng.IntN(4) > 0 {
			<-time.After(time.Duration(rng.IntN(6)) * time.Millisecond)
			_ = plugins[i].Process.Kill()
		}
	}
	for _, plugin := range plugins {
		_ = plugin.Wait()
	}
	for i, p := range pods {
		if i%2 == 0 {
			a.del(p)
		}
		a.vanish(p)
	}
}

// exec starts the plugin as a runtime does that does not live to read its result.
func (w *world) exec(p *pod, command string) *exec.Cmd {
	w.t.Helper()
	list, err := libcni.ConfListFromFile(filepath.Join(w.dir, "net.d", install.FileName))
	w.check(err)
	var conf map[string]any
	w.check(json.Unmarshal(list.Plugins[0].Bytes, &conf))
	conf["name"], conf["cniVersion"] = list.Name, list.CNIVersion
	stdin, err := json.Marshal(conf)
	w.check(err)
	var args []string
	for _, arg := range p.conf.Args {
		args = append(args, arg[0]+"="+arg[1])
	}
	reader, writer, err := os.Pipe()
	w.check(err)
	cmd := exec.Command(filepath.Join(w.bin, install.PluginName))
	cmd.Stdin, cmd.Stdout = strings.NewReader(string(stdin)), writer
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + p.conf.ContainerID, "CNI_NETNS=" + p.conf.NetNS, "CNI_IFNAME=eth0",
		"CNI_PATH=" + w.bin, "CNI_ARGS=" + strings.Join(args, ";"), "NETLAB_INSIDE=" + os.Getenv("NETLAB_INSIDE"),
	}
	w.check(w.node.Start(cmd))
	w.check(writer.Close())
	w.check(reader.Close())
	return cmd
}
