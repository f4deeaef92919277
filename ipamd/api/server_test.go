package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// peerVar makes the test program a foreign peer: it asks the socket that the variable names and prints the code.
const peerVar = "API_TEST_PEER"

func TestMain(m *testing.M) {
	if path := os.Getenv(peerVar); path != "" {
		client, err := Dial(context.Background(), path)
		if err == nil {
			err = client.Status(context.Background())
		}
		var refusal *Error
		if errors.As(err, &refusal) {
			fmt.Print("code ", refusal.Code)
		} else {
			fmt.Print(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestEveryMethodOverARealSocket(t *testing.T) {
	b := newBook()
	path, _ := daemon(t, b)
	client := dial(t, path)
	network, err := client.Assign(t.Context(), assignOf("a"))
	if want := (PodNetwork{HostVeth: "eni1", Addr: netip.MustParsePrefix("10.0.1.20/32")}); err != nil || !reflect.DeepEqual(network, want) {
		t.Errorf("Assign: %+v, %v", network, err)
	}
	_, err = client.Check(t.Context(), sandboxOf("a"))
	wantCode(t, err, CodeNotAssigned)
	must(t, client.Done(t.Context(), doneOf("a")))
	if network, err = client.Check(t.Context(), sandboxOf("a")); err != nil || network.HostVeth != "eni1" {
		t.Errorf("Check: %+v, %v", network, err)
	}
	must(t, client.Status(t.Context()))
	freed, err := client.GC(t.Context(), GCRequest{Network: "aws-cni", Valid: []Attachment{sandboxOf("x")}})
	if err != nil || len(freed.Freed) != 1 || freed.Freed[0] != sandboxOf("x") {
		t.Errorf("GC: %+v, %v", freed, err)
	}
	must(t, client.Release(t.Context(), ReleaseRequest{Attachment: sandboxOf("a")}))
	must(t, client.Release(t.Context(), ReleaseRequest{Attachment: sandboxOf("a")}))
}

func TestErrorsKeepTheirCodes(t *testing.T) {
	cases := map[string]struct {
		err  error
		code uint
	}{
		"refusal":         {NewError(CodeLimited, "no ENI", "why"), CodeLimited},
		"wrapped refusal": {fmt.Errorf("ask pool: %w", NewError(CodeTryAgain, "full", "")), CodeTryAgain},
		"deadline":        {fmt.Errorf("wait: %w", context.DeadlineExceeded), CodeTryAgain},
		"cancelled":       {context.Canceled, CodeTryAgain},
		"anything else":   {errors.New("disk is full"), CodeInternal},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBook()
			b.onStatus = func(context.Context) error { return c.err }
			path, _ := daemon(t, b)
			err := dial(t, path).Status(t.Context())
			wantCode(t, err, c.code)
			var refusal *Error
			if errors.As(c.err, &refusal) && err.Error() != refusal.Error() {
				t.Errorf("says %q, not %q", err, refusal)
			}
		})
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	b := newBook()
	b.onStatus = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	path, _ := daemon(t, b)
	client := dial(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := client.Status(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := dial(t, path).Status(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	b := newBook()
	path, _ := daemon(t, b)
	const clients = 110
	errs := make(chan error, clients)
	for i := range clients {
		go func() {
			client, err := Dial(t.Context(), path)
			if err != nil {
				errs <- err
				return
			}
			id := strconv.Itoa(i)
			_, err = client.Assign(t.Context(), assignOf(id))
			errs <- errors.Join(err, client.Done(t.Context(), doneOf(id)), client.Close())
		}()
	}
	for range clients {
		must(t, <-errs)
	}
	if got := len(b.saw()); got != 2*clients {
		t.Errorf("%d events", got)
	}
}

func TestSocketFile(t *testing.T) {
	path, stop := daemon(t, newBook())
	info, err := os.Lstat(path)
	must(t, err)
	if info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("second server on a live socket: %v", err)
	}
	must(t, dial(t, path).Status(t.Context()))
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

func TestSocketOfADeadServerIsReplaced(t *testing.T) {
	path := folder(t) + "/sub/cni.sock"
	dead, err := Listen(path)
	must(t, err)
	must(t, dead.socket.Close()) // as by SIGKILL: the file stays
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	next, err := Listen(path)
	must(t, err)
	must(t, dead.Close()) // and must not remove the next one's file
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	must(t, next.Close())
}

func TestOnlySocketsAreReplaced(t *testing.T) {
	path := folder(t) + "/cni.sock"
	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if kept, _ := os.ReadFile(path); string(kept) != "precious" {
		t.Errorf("file holds %q", kept)
	}
}

func TestWhoMayConnect(t *testing.T) {
	for _, c := range []struct {
		uid, own uint32
		want     bool
	}{{0, 0, true}, {0, 1000, true}, {1000, 1000, true}, {1000, 0, false}, {1001, 1000, false}, {65534, 0, false}} {
		if got := mayConnect(c.uid, c.own); got != c.want {
			t.Errorf("uid %d to a server of %d: %v", c.uid, c.own, got)
		}
	}
}

// TestForeignPeerIsRefused runs a peer under another uid, with a socket whose mode would let it in.
func TestForeignPeerIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user; TestWhoMayConnect covers the decision")
	}
	nobody, err := user.Lookup("nobody")
	must(t, err)
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	must(t, err)
	b := newBook()
	path, _ := daemon(t, b)
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	must(t, os.Chmod(path, 0o666))
	program := filepath.Join(filepath.Dir(path), "peer")
	self, err := os.Executable()
	must(t, err)
	binary, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(program, binary, 0o755))
	for _, c := range []struct {
		uid  uint32
		want string
	}{{0, "<nil>"}, {uint32(uid), fmt.Sprint("code ", CodeDenied)}} {
		cmd := exec.Command(program)
		cmd.Env = []string{peerVar + "=" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: 0}}
		if output, err := cmd.Output(); err != nil || string(output) != c.want {
			t.Errorf("uid %d: %q, %v; want %q", c.uid, output, err, c.want)
		}
	}
}

func TestServeEndsWithOpenConnections(t *testing.T) {
	b := newBook()
	path, stop := daemon(t, b)
	waiting, err := net.Dial("unix", path)
	must(t, err)
	defer waiting.Close()
	must(t, dial(t, path).Status(t.Context()))
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(shutdownGrace):
		t.Error("idle connections held the server up")
	}
}
