package ipamd_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
	"github.com/vpc-cni/vpc-cni/ipamd/install"
)

// The node fills up: two pods on the primary ENI, two on a second one that is attached while their ADD waits, and for a
// fifth there is a sentence.
func TestPodsFillTheNode(t *testing.T) {
	w := newWorld(t)
	w.start()
	var pods []*pod
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, w.add(name))
	}
	if enis := w.model.InstanceENIs(w.instance.ID); len(enis) != 2 {
		t.Errorf("%d ENIs", len(enis))
	}
	var addrs []netip.Addr
	for _, p := range pods {
		if slices.Contains(addrs, p.addr) {
			t.Errorf("%s is given twice", p.addr)
		}
		addrs = append(addrs, p.addr)
		w.reaches(p, ec2Addr+":80")
	}
	for _, server := range pods {
		listener, err := server.ns.Listen(t.Context(), "tcp", server.addr.String()+":7000")
		w.check(err)
		for _, client := range pods {
			if client != server {
				w.reaches(client, server.addr.String()+":7000")
			}
		}
		_ = listener.Close()
	}

	refused := w.assign("full")
	if refused == nil || refused.Code != api.CodeTryAgain || !strings.Contains(refused.Error(), "all 2 ENIs that are allowed") {
		t.Errorf("a fifth pod: %v", refused)
	}
	drops, err := w.plane.Counters()
	w.check(err)
	for reason, n := range drops {
		if n != 0 && strings.Contains(reason, "source") {
			t.Errorf("%d packets dropped: %s", n, reason)
		}
	}
	w.look()

	// An address that is given back is used again, after its cooldown, for a pod that waits.
	w.del(pods[0])
	if again := w.add("e"); again.addr != pods[0].addr {
		t.Errorf("given %s, free is %s", again.addr, pods[0].addr)
	}
	for _, p := range pods[1:] {
		w.check(w.cniCheck(p))
	}
}

// look reads the daemon's pages with four pods running.
func (w *world) look() {
	w.t.Helper()
	for _, want := range []struct{ socket, path, text string }{
		{"metrics.sock", "/metrics", "awscni_assigned_ip_addresses 4\n"},
		{"metrics.sock", "/metrics", "awscni_total_ip_addresses 4\n"},
		{"metrics.sock", "/metrics", "awscni_eni_allocated 2\n"},
		{"metrics.sock", "/metrics", "awscni_eni_max 2\n"},
		{"metrics.sock", "/metrics", "awscni_ip_max 4\n"},
		{"metrics.sock", "/metrics", "awscni_add_ip_req_count 5\n"},
		{"metrics.sock", "/metrics", "awscni_no_available_ip_addresses 1\n"},
		{"metrics.sock", "/metrics", `awscni_ec2api_req_count{fn="AttachNetworkInterface"} 1`},
		{"introspection.sock", "/v1/enis", `"AssignedIPs": 4`},
		{"introspection.sock", "/v1/ipamd-env-settings", `"IP_COOLDOWN_PERIOD": "1"`},
		{"introspection.sock", "/v1/status", `"Name": "d"`},
	} {
		if text := w.page(want.socket, want.path); !strings.HasPrefix(text, "200") || !strings.Contains(text, want.text) {
			w.t.Errorf("%s does not say %q:\n%s", want.path, want.text, text)
		}
	}
}

// assign asks the daemon as the plugin does, with a short deadline.
func (w *world) assign(sandbox string) *api.Error {
	w.t.Helper()
	client, err := api.Dial(w.t.Context(), w.socket())
	w.check(err)
	defer client.Close()
	_, err = client.Assign(w.t.Context(), api.AssignRequest{
		Attachment: api.Attachment{Network: "aws-cni", ContainerID: sandbox, IfName: "eth0"},
		Pod:        api.Pod{Namespace: "default", Name: sandbox}, NetNS: "/nonexistent", DeadlineMS: 500,
	})
	var refused *api.Error
	errors.As(err, &refused)
	return refused
}

func TestPodsOutliveTheDaemon(t *testing.T) {
	for _, end := range []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"told to end", syscall.SIGTERM}} {
		t.Run(end.name, func(t *testing.T) {
			w := newWorld(t)
			w.start()
			kept, gone := w.add("kept"), w.add("gone")
			third := w.add("third") // on the second ENI
			if err := w.end(end.signal); (err == nil) != (end.signal == syscall.SIGTERM) {
				t.Errorf("daemon ended with %v", err)
			}

			w.reaches(kept, ec2Addr+":80")
			w.reaches(third, ec2Addr+":80")
			if _, err := os.Stat(filepath.Join(w.dir, "net.d", install.FileName)); err != nil {
				t.Errorf("network configuration: %v", err)
			}
			w.del(gone) // nobody is there: success all the same
			w.del(gone)

			w.start()
			for _, p := range []*pod{kept, third} {
				w.check(w.cniCheck(p))
				w.reaches(p, ec2Addr+":80")
			}
			w.await("the deletion of the time without a daemon is carried out", func() bool {
				return strings.Contains(w.page("metrics.sock", "/metrics"), "awscni_assigned_ip_addresses 2\n")
			})
			fourth, fifth := w.add("fourth"), w.add("fifth")
			for _, p := range []*pod{fourth, fifth} {
				if p.addr == kept.addr || p.addr == third.addr {
					t.Errorf("%s is given twice", p.addr)
				}
				w.reaches(p, ec2Addr+":80")
			}
		})
	}
}

// Before EC2 has answered there is no network configuration, and STATUS says why.
func TestNotReadyBeforeTheFirstReading(t *testing.T) {
	w := newWorld(t)
	w.check(w.faults.Add(fault.Rule{Name: "down", Action: "DescribeNetworkInterfaces", Kind: fault.Error, Code: "UnauthorizedOperation", Status: 403}))
	w.launch()
	var status *api.Error
	w.await("socket", func() bool { return errors.As(w.status(), &status) })
	if status.Code != api.CodeNotAvailable {
		t.Errorf("status: %v", status)
	}
	if refused := w.assign("early"); refused == nil || refused.Code != api.CodeTryAgain || !strings.Contains(refused.Error(), "UnauthorizedOperation") {
		t.Errorf("ADD: %v", refused)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "net.d")); err == nil {
		t.Error("a network configuration is there")
	}
	if err := w.end(syscall.SIGTERM); err != nil {
		t.Errorf("daemon ended with %v", err)
	}
}

// With annotations on and nobody at the API server's address, pods start as ever.
func TestPodsStartWhileTheAPIServerIsDown(t *testing.T) {
	const wait = 300 * time.Millisecond
	w := newWorld(t, "ANNOTATE_POD_IP=true", "ANNOTATE_POD_IP_WAIT="+wait.String())
	kubeconfig := filepath.Join(w.dir, "kubeconfig")
	w.check(os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"http://10.0.255.99:8080"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600))
	w.env = append(w.env, "KUBECONFIG="+kubeconfig)
	w.start()
	start := time.Now()
	p := w.add("a")
	if took := time.Since(start); took < wait || took > wait+patience/4 {
		t.Errorf("ADD took %s, the wait for the annotation is %s", took, wait)
	}
	w.reaches(p, ec2Addr+":80")
	if text := w.page("metrics.sock", "/metrics"); !strings.Contains(text, "vpccni_annotations_pending 1\n") {
		t.Error("the annotation is not pending")
	}
	w.del(p)
	if err := w.end(syscall.SIGTERM); err != nil {
		t.Errorf("daemon ended with %v", err)
	}
}

// An unreadable state is put aside; pods keep their addresses by the evidence of the kernel.
func TestUnreadableState(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.add("a")
	_ = w.end(syscall.SIGKILL)
	state := filepath.Join(w.dir, "state")
	w.check(os.WriteFile(filepath.Join(state, "state.json"), []byte(`{"ver`), 0o600))
	w.start()
	if other := w.add("b"); other.addr == p.addr {
		t.Errorf("%s is given twice", p.addr)
	}
	entries, err := os.ReadDir(state)
	w.check(err)
	aside := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "state.json.") })
	log, err := os.ReadFile(w.log.Name())
	w.check(err)
	if !aside || !strings.Contains(string(log), "state.json") {
		t.Errorf("state folder: %v", entries)
	}
	w.reaches(p, ec2Addr+":80")
}

func TestTheSecondDaemonOfANodeTakesOver(t *testing.T) {
	w := newWorld(t)
	w.start()
	p := w.add("a")
	first, firstEnded := w.daemon, w.ended
	w.launch()
	w.await("the second daemon waits", func() bool {
		log, err := os.ReadFile(w.log.Name())
		return err == nil && strings.Contains(string(log), "waiting for another daemon")
	})
	w.check(w.cniCheck(p))
	w.check(first.Process.Signal(syscall.SIGTERM))
	if err := <-firstEnded; err != nil {
		t.Errorf("first daemon ended with %v", err)
	}
	w.await("the second daemon serves", func() bool { return w.status() == nil })
	w.check(w.cniCheck(p))
}

func TestAWrongSettingStopsTheDaemonWithAList(t *testing.T) {
	w := newWorld(t, "WARM_IP_TARGET=many", "ENABLE_POD_ENI=true")
	w.launch()
	if err := <-w.ended; err == nil {
		t.Error("daemon ended without an error")
	}
	w.daemon = nil
	log, err := os.ReadFile(w.log.Name())
	w.check(err)
	if !strings.Contains(string(log), `WARM_IP_TARGET="many"`) || !strings.Contains(string(log), `ENABLE_POD_ENI="true"`) {
		t.Errorf("it says:\n%s", log)
	}
}
