package awscli

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vpc-cni/vpc-cni/e2e/ping"
	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// office is the world of a script that has no world.yaml of its own.
//
//go:embed testdata/office.yaml
var office []byte

// A host that should answer is asked until it does; one that should not is given long enough to be caught at it.
const (
	interval   = 100 * time.Millisecond
	patience   = time.Minute
	impatience = 3 * time.Second
)

// desk is the node of every world at which the commands are typed.
const desk = "desk"

// prompt is where a script's commands are typed.
type prompt struct {
	aws       string // the AWS CLI
	fake      string // the fake's program
	dir       string // of the served world
	namespace string // in which commands run; "" is the test's own
	endpoint  string
	exit      int // of the last command
}

type promptKey struct{}

func promptOf(ts *testscript.TestScript) *prompt { return ts.Value(promptKey{}).(*prompt) }

// setUp serves a script's world and gives the commands an environment in which they find nothing of this machine's.
func setUp(env *testscript.Env, aws string) error {
	p := &prompt{aws: aws, fake: filepath.Join(os.Getenv(binVar), "fakeec2"), dir: filepath.Join(env.WorkDir, ".fakeec2")}
	env.Values[promptKey{}] = p
	for name, value := range map[string]string{
		"HOME": env.WorkDir, "AWS_CONFIG_FILE": filepath.Join(env.WorkDir, ".aws", "config"),
		"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(env.WorkDir, ".aws", "credentials"),
		"AWS_ACCESS_KEY_ID":           "AKIDOFFICE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-west-2", "AWS_PAGER": "",
		"AWS_EC2_METADATA_DISABLED": "true", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
	} {
		env.Setenv(name, value)
	}
	world := filepath.Join(env.WorkDir, "world.yaml")
	if _, err := os.Stat(world); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(world, office, 0o600); err != nil {
			return err
		}
	}
	return p.serve(env, world)
}

// serve starts the fake and waits until its world stands.
func (p *prompt) serve(env *testscript.Env, world string) error {
	cmd := exec.Command(p.fake, "serve", "--dir", p.dir, "--scenario", world)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the fake: %w", err)
	}
	env.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			panic(fmt.Sprintf("the fake ended with %v", err))
		}
	})
	var ready struct {
		EC2        string
		Namespaces map[string]string
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("wait for the fake: %w", err)
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("read the fake's first line: %w", err)
	}
	p.namespace, p.endpoint = ready.Namespaces[desk], ready.EC2
	if p.namespace == "" {
		return fmt.Errorf("the world has no node named %q", desk)
	}
	return nil
}

// strict serves an endpoint that looks at signatures: it knows one key, and its clock may be ahead of this machine's.
func (p *prompt) strict(id, secret string, ahead time.Duration) (stop func(), err error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	handler := ec2api.New(ec2api.Options{
		VPC: vpc.New(vpc.Options{}), Now: func() time.Time { return time.Now().Add(ahead) },
		Keys: func(key string) (ec2api.Key, bool) { return ec2api.Key{Secret: secret, OptedIn: true}, key == id },
	})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with Close
	p.namespace, p.endpoint = "", "http://"+listener.Addr().String()
	return func() { server.Close() }, nil
}

// command is the AWS CLI's command line. Debian's version does not know AWS_ENDPOINT_URL_EC2 yet (2.13 is the first), so the
// endpoint is an option.
func (p *prompt) command(args []string) []string {
	line := append([]string{p.aws, "--endpoint-url", p.endpoint}, args...)
	if p.namespace == "" {
		return line
	}
	return append([]string{"nsenter", "--net=" + p.namespace}, line...)
}

// exitCode of a command that ran.
func exitCode(err error) (int, error) {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &ended):
		return ended.ExitCode(), nil
	}
	return 0, err
}

// reaches tells whether an instance of the world has an answer from an address within some time.
func (p *prompt) reaches(instance, address string, within time.Duration) (bool, error) {
	to, err := netip.ParseAddr(address)
	if err != nil {
		return false, err
	}
	ns, err := netlab.Open(filepath.Join(filepath.Dir(p.namespace), instance))
	if err != nil {
		return false, err
	}
	defer ns.Close()
	var conn net.PacketConn
	if err := ns.Do(func() (err error) {
		conn, err = ping.Listen()
		return err
	}); err != nil {
		return false, err
	}
	prober := ping.NewProber(conn)
	defer prober.Close()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	train := prober.Start(ctx, to, interval)
	select {
	case <-train.Answered():
		return true, nil
	case <-ctx.Done():
		return false, nil
	}
}
