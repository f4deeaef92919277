package cni_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// kill ends a plugin as a runtime does whose patience is over.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed", or the result of one that was quicker
}

func TestPluginKilledWhileItWaitsForAnAddress(t *testing.T) {
	n := newNode(t, "1.0.0")
	asked, given := make(chan struct{}, 1), make(chan error, 1)
	n.allocator.beforeAssign = func(ctx context.Context) error {
		asked <- struct{}{}
		<-ctx.Done() // an empty pool: until the plugin is gone
		given <- ctx.Err()
		return ctx.Err()
	}
	s := n.sandbox("one", "web-0")
	cmd := n.command("ADD", s, n.conf(""))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	kill(t, cmd)
	if err := <-given; err != context.Canceled {
		t.Errorf("waiting ADD ended with %v", err)
	}
	n.clean()
}

// TestPluginKilledBeforeDoneIsAnswered has the kernel's work complete and the daemon's answer missing.
func TestPluginKilledBeforeDoneIsAnswered(t *testing.T) {
	for _, next := range []string{"ADD", "DEL"} {
		t.Run("next is "+next, func(t *testing.T) {
			n := newNode(t, "1.0.0")
			n.route()
			asked := make(chan struct{}, 1)
			n.allocator.beforeDone = func(ctx context.Context) error {
				asked <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			s := n.sandbox("one", "web-0")
			cmd := n.command("ADD", s, n.conf(""))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-asked
			kill(t, cmd)
			await(t, "abort", func() bool { return n.allocator.live() == 0 })
			n.allocator.beforeDone = nil

			if next == "ADD" {
				// Another pod takes the address that the dead plugin's veth still bears.
				other := n.sandbox("two", "web-1")
				n.add(other)
				n.add(s)
				for _, alive := range []sandbox{other, s} {
					if err := n.check(alive); err != nil {
						t.Errorf("CHECK %s: %v", alive.ContainerID, err)
					}
				}
				if err := ping(other.ns, nodeAddr.Addr()); err != nil {
					t.Error(err)
				}
				if err := ping(s.ns, nodeAddr.Addr()); err != nil {
					t.Error(err)
				}
				if routes := n.podRoutes(); len(routes) != 2 {
					t.Errorf("pod routes: %v", routes)
				}
				n.del(other)
			}
			n.del(s)
			n.clean()
		})
	}
}

// TestPluginKilledAtAnyMoment kills ADDs and DELs at moments spread over their whole run.
func TestPluginKilledAtAnyMoment(t *testing.T) {
	n := newNode(t, "1.0.0")
	s := n.sandbox("one", "web-0")
	began := time.Now()
	n.add(s)
	whole := time.Since(began)
	n.del(s)
	const moments = 40
	killed := 0
	for i := range moments {
		for _, verb := range []string{"ADD", "DEL"} {
			if verb == "DEL" {
				n.add(s)
			}
			cmd := n.command(verb, s, n.conf(""))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			timer := time.AfterFunc(whole*time.Duration(i)/moments, func() { _ = cmd.Process.Kill(); close(ended) })
			if err := cmd.Wait(); err != nil {
				killed++
			}
			if !timer.Stop() {
				<-ended
			}
			if i%2 == 0 {
				n.add(s)
				if err := n.check(s); err != nil {
					t.Fatalf("%s killed at %d of %d, then ADD: %v", verb, i, moments, err)
				}
			}
			n.del(s)
			await(t, "daemon to see the end", func() bool { return n.allocator.live() == 0 })
			if found := n.leftovers(); len(found) > 0 {
				t.Fatalf("%s killed at %d of %d, then DEL: kernel keeps %q", verb, i, moments, found)
			}
		}
	}
	if killed < moments/2 {
		t.Errorf("only %d plugins were killed in time: the moments are not spread over the run", killed)
	}
}

// TestConnectionBreaksBeforeDoneIsAnswered has a daemon that dies between its recipe and its answer to done.
func TestConnectionBreaksBeforeDoneIsAnswered(t *testing.T) {
	n := newNode(t, "1.0.0")
	n.stop()
	listener, err := net.Listen("unix", n.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	died := make(chan error, 1)
	go func() { died <- dieAfterRecipe(listener) }()
	_, err = n.tryAdd(n.sandbox("one", "web-0"))
	if code(t, err) != 11 || !strings.Contains(err.Error(), "confirm address") {
		t.Errorf("ADD: %v", err)
	}
	if err := <-died; err != nil {
		t.Fatal(err)
	}
	if found := n.leftovers(); len(found) > 0 {
		t.Errorf("kernel keeps %q", found)
	}
}

// dieAfterRecipe answers the first request of the first connection with a recipe, and closes when the second has come.
func dieAfterRecipe(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	read := func() error {
		var header [4]byte
		if _, err := io.ReadFull(conn, header[:]); err != nil {
			return err
		}
		_, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(header[:])))
		return err
	}
	if err := read(); err != nil {
		return err
	}
	held := &assignment{addr: netip.MustParseAddr("10.0.1.20"), pod: api.Pod{Namespace: "default", Name: "web-0"}}
	body, err := json.Marshal(map[string]any{"version": api.Version, "body": recipe(held)})
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		return err
	}
	return read()
}

func TestManyAtOnce(t *testing.T) {
	n := newNode(t, "1.0.0")
	const pods = 30
	sandboxes := make([]sandbox, pods)
	for i := range sandboxes {
		sandboxes[i] = n.sandbox(fmt.Sprintf("sb%d", i), fmt.Sprintf("web-%d", i))
	}
	all := func(do func(sandbox) error) {
		errs := make(chan error)
		for _, s := range sandboxes {
			go func() { errs <- do(s) }()
		}
		for range sandboxes {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
	all(func(s sandbox) error { _, err := n.tryAdd(s); return err })
	all(n.check)
	if routes := n.podRoutes(); len(routes) != pods {
		t.Errorf("%d pod routes", len(routes))
	}
	all(func(s sandbox) error {
		return n.runtime.DelNetworkList(context.Background(), n.list, s.RuntimeConf)
	})
	n.clean()
}
