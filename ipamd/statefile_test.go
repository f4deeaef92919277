package ipamd_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// damages are states of the file that no daemon of this version can read.
var damages = map[string]func(whole []byte) []byte{
	"truncated":  func(whole []byte) []byte { return whole[:len(whole)*2/3] },
	"empty":      func([]byte) []byte { return nil },
	"zero bytes": func(whole []byte) []byte { return make([]byte, len(whole)) },
	"garbage":    func([]byte) []byte { return []byte("\x7fELF\x02\x01 no state at all \xff\xfe") },
	"a newer version": func(whole []byte) []byte {
		return bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1)
	},
	"version 0": func(whole []byte) []byte {
		return bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":0`), 1)
	},
}

// B14. The file is put aside with a clear message, the state is made again from the kernel and the runtime's results: ADD
// is served at once, running pods keep their addresses and all that they had.
func TestB14UnreadableStateIsPutAsideAndMadeAgain(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, true)
			w.start()
			a, b := w.add("a"), w.add("b")
			_ = w.end(syscall.SIGKILL)
			bad := w.damage(damage)

			w.start()
			w.quarantined(bad)
			w.live(a, b)
			c := w.addSoon("c", a, b)
			w.del(a)
			w.assigned("2")
			w.check(w.gc(c))
			w.assigned("2") // b is no member of the list, and its veth stands: the address is not to be had
			d := w.addSoon("d", b, c)
			w.reaches(b, ec2Addr+":80")

			// The next life knows nothing of it.
			_ = w.end(syscall.SIGKILL)
			w.start()
			w.live(c, d)
			if text := w.page("metrics.sock", "/metrics"); !strings.Contains(text, `vpccni_state_trouble{kind="load"} 0`) {
				t.Error("the metric still shows trouble after a clean start")
			}
			if n := len(w.asides()); n != 1 {
				t.Errorf("%d files were put aside", n)
			}
		})
	}
}

// damage changes the state file and gives its new content.
func (w *world) damage(damage func([]byte) []byte) []byte {
	w.t.Helper()
	whole, err := os.ReadFile(w.statePath())
	w.check(err)
	bad := damage(bytes.Clone(whole))
	if bytes.Equal(whole, bad) {
		w.t.Fatal("the damage changes nothing")
	}
	w.check(os.WriteFile(w.statePath(), bad, 0o600))
	return bad
}

func (w *world) asides() []string {
	w.t.Helper()
	names, err := filepath.Glob(w.statePath() + ".unreadable-*")
	w.check(err)
	return names
}

// quarantined fails the test unless the bad content was kept and people are told of it.
func (w *world) quarantined(bad []byte) {
	w.t.Helper()
	asides := w.asides()
	if len(asides) != 1 {
		w.t.Fatalf("put aside: %v", asides)
	}
	if kept, err := os.ReadFile(asides[0]); err != nil || !bytes.Equal(kept, bad) {
		w.t.Errorf("%s is not what was there: %v", asides[0], err)
	}
	if !w.logged("level=ERROR", w.statePath(), asides[0], "look at the file, then delete it") {
		w.t.Error("the log does not say what happened")
	}
	if text := w.page("introspection.sock", "/v1/status"); !strings.Contains(text, asides[0]) {
		w.t.Error("/v1/status does not show it")
	}
	if text := w.page("metrics.sock", "/metrics"); !strings.Contains(text, `vpccni_state_trouble{kind="load"} 1`) {
		w.t.Error("the metric does not show it")
	}
}

// B13. Without results (a runtime that keeps none, or a folder that is not mounted) the kernel alone speaks for the pods.
func TestB13PodsWithoutRecordKeepTheirAddresses(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"unreadable": func(w *world) { w.damage(damages["truncated"]) },
		"missing":    func(w *world) { w.check(os.RemoveAll(w.stateDir())) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, false)
			w.start()
			a, b := w.add("a"), w.add("b")
			_ = w.end(syscall.SIGKILL)
			lose(w)
			w.start()
			w.shows("metrics.sock", "/metrics", `vpccni_state_trouble{kind="load"} 1`)
			if !w.logged("level=ERROR", "state not loaded", w.statePath()) {
				t.Error("the log does not say that the state is lost")
			}
			w.assigned("2")
			c := w.addSoon("c", a, b)
			w.check(w.gc(c)) // not knowing them is no reason to take their addresses
			w.addSoon("d", a, b, c)
			if refused := w.assign("e"); refused == nil || refused.Code != api.CodeTryAgain {
				t.Errorf("a fifth pod on four addresses: %v", refused)
			}
			if got := code(w.cniCheck(a)); got != api.CodeNotAssigned {
				t.Errorf("CHECK of a pod without record: code %d", got)
			}
			// DEL frees the address at once: its route is seen gone, which no audit is needed for.
			w.within(soon, "DEL", func() {
				w.del(a)
				w.assigned("3")
			})
			w.reaches(b, ec2Addr+":80")
			if e := w.addSoon("e", b, c); e.addr != a.addr {
				t.Errorf("given %s, free is %s", e.addr, a.addr)
			}
			w.reaches(b, ec2Addr+":80")
		})
	}
}

// The same with results: the pod is known again in every way.
func TestB13MissingStateIsMadeAgainFromTheRuntimesResults(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t, true)
	w.start()
	a, b, lost := w.add("a"), w.add("b"), w.add("lost")
	_ = w.end(syscall.SIGKILL)
	w.check(os.RemoveAll(w.stateDir()))
	w.forget(lost)
	results := filepath.Join(w.dir, "cache", "results")
	w.check(os.WriteFile(filepath.Join(results, "aws-cni-junk-eth0"), []byte(`{"kind":`), 0o600)) // a full disk, say
	w.check(os.WriteFile(filepath.Join(results, "aws-cni-gone-eth0"), []byte(`{"kind":"cniCacheV1","containerId":"gone","ifName":"eth0",`+
		`"networkName":"aws-cni","cniArgs":[["K8S_POD_NAME","gone"]],"result":{"ips":[{"address":"10.0.1.200/32"}]}}`), 0o600))
	w.start()
	w.live(a, b)
	w.reaches(lost, ec2Addr+":80")
	w.assigned("3")
	if !w.logged("state made again", "pods=3", "found=2") {
		t.Error("the log does not say what was found")
	}
	if text := w.page("introspection.sock", "/v1/status"); strings.Contains(text, "10.0.1.200") || !strings.Contains(text, `"uid-a"`) {
		t.Error("/v1/status has the pod of the time before, or lacks one that runs")
	}
	w.check(w.tryAdd(a)) // the runtime asks again: the same answer
	w.live(a)
	w.addSoon("d", a, b, lost)
}

// A result is believed only with the address that its pod's veth was built for, however young it is.
func TestB13ResultWithAnotherPodsAddressIsNotBelieved(t *testing.T) {
	t.Parallel()
	w := newStateWorld(t, true)
	w.start()
	a, b := w.add("a"), w.add("b")
	_ = w.end(syscall.SIGKILL)
	lie := filepath.Join(w.dir, "cache", "results", "aws-cni-"+a.conf.ContainerID+"-eth0")
	text, err := os.ReadFile(lie)
	w.check(err)
	w.check(os.WriteFile(lie, []byte(strings.ReplaceAll(string(text), a.addr.String()+"/", b.addr.String()+"/")), 0o600))
	later := time.Now().Add(time.Hour)
	w.check(os.Chtimes(lie, later, later))
	w.check(os.RemoveAll(w.stateDir()))
	w.start()
	w.live(b)
	w.reaches(a, ec2Addr+":80")
	w.assigned("2")
	if !w.logged("state made again", "pods=2", "found=1") {
		t.Error("the log does not say that one result was believed")
	}
	if got := code(w.cniCheck(a)); got != api.CodeNotAssigned {
		t.Errorf("CHECK of the pod whose result lies: code %d", got)
	}
}

// A plugin is at work when the daemon dies and the state is lost: the one address that could be given twice. It cannot finish.
func TestInterruptedADDWhoseRecordIsLostCannotFinish(t *testing.T) {
	for name, built := range map[string]bool{"nothing built": false, "built": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, true)
			w.start()
			late := w.sandbox("late")
			client, key, recipe := w.begin(late)
			if built {
				w.build(late, recipe)
			}
			_ = w.end(syscall.SIGKILL)
			w.check(os.Remove(w.statePath()))
			w.start()
			late.addr = recipe.Addr.Addr()
			var others []*pod
			if built { // its route speaks for it while it stands
				others = append(others, late)
			}
			p := w.addSoon("p", others...)
			if err := client.Done(t.Context(), api.DoneRequest{Attachment: key}); err == nil {
				t.Error("done was answered")
			}
			if !built {
				w.cannotBuild(late, recipe, p)
			}
			w.tear(late)
			w.live(p)
			w.assigned("1")
		})
	}
}

// B16. After a reboot the run folder is empty or of another boot, the ENIs are still attached with the old addresses, and
// the kernel has nothing.
func TestB16RebootStartsCleanAndAtOnce(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"run folder is empty": func(w *world) { w.check(os.RemoveAll(w.stateDir())) },
		"state of another boot": func(w *world) {
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			w.check(err)
			w.damage(func(whole []byte) []byte {
				return bytes.Replace(whole, bytes.TrimSpace(boot), []byte("00000000-0000-0000-0000-000000000000"), 1)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStateWorld(t, true, "IP_COOLDOWN_PERIOD=30")
			w.start()
			var old []*pod
			for _, pod := range []string{"a", "b", "c"} {
				old = append(old, w.add(pod))
			}
			w.reboot(old)
			lose(w)
			w.start()
			if text := w.page("metrics.sock", "/metrics"); !strings.Contains(text, `vpccni_state_trouble{kind="load"} 0`) {
				t.Error("a reboot is shown as trouble")
			}
			if n := len(w.asides()); n != 0 {
				t.Errorf("%d files were put aside", n)
			}
			var pods []*pod
			for _, p := range []string{"d", "e", "f", "g"} { // all addresses that there are
				pods = append(pods, w.addSoon(p, pods...))
			}
			w.live(pods...)
			for _, p := range old { // the kubelet cleans up what it knows of the time before
				w.del(p)
			}
			w.live(pods...)
			w.assigned("4")
		})
	}
}

// reboot ends the daemon and takes from the node's namespace what a boot would: pods, routes, rules, tables, what links carry.
func (w *world) reboot(pods []*pod) {
	w.t.Helper()
	_ = w.end(syscall.SIGKILL)
	for _, p := range pods {
		w.check(p.ns.Close())
	}
	w.await("veths are gone", func() bool { return !strings.Contains(w.run("ip", "-br", "link"), "eni") })
	for _, command := range []string{
		"nft flush ruleset", "ip rule flush protocol 201", "ip route flush table all protocol 201", "ip link set eth1 down", "ip addr flush dev eth1",
	} {
		w.run(strings.Fields(command)...)
	}
	if text := w.run("ip", "rule") + w.run("nft", "list", "ruleset"); strings.Contains(text, "7000") || strings.Contains(text, "table") {
		w.t.Fatalf("left of the time before:\n%s", text)
	}
}

// run runs a command in the node's namespace.
func (w *world) run(command ...string) string {
	w.t.Helper()
	var output []byte
	err := w.node.Do(func() (err error) {
		output, err = exec.Command(command[0], command[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		w.t.Fatalf("%v: %v: %s", command, err, output)
	}
	return string(output)
}
