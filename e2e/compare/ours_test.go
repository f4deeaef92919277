package compare_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// ours is this project's software on a machine.
type ours struct {
	name     string
	dir      string // of its files
	logs     string
	ns       *netlab.Namespace
	mounts   *netlab.Mounts // all that ours needs is below dir, but it enters as the incumbent does
	settings map[string]string
	rooms    int

	daemon *exec.Cmd
	ended  chan struct{}
}

// oursDir holds the files of ours' nodes. It is on Isolate's own tmpfs.
const oursDir = "/run/compare"

func newOurs(c *netns.Cluster, machine, logs string) (*ours, error) {
	place, err := c.Machine(machine)
	if err != nil {
		return nil, err
	}
	o := &ours{name: machine, dir: filepath.Join(oursDir, machine), logs: logs}
	for _, dir := range []string{o.file("net.d"), o.file("bin"), o.file("state"), o.file("netns"), logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make folder of %s: %w", machine, err)
		}
	}
	if err := netlab.Share(o.file("netns")); err != nil { // pods come later than the mount namespace
		return nil, err
	}
	program, err := os.ReadFile(o.program("aws-cni"))
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	if err := os.WriteFile(o.pluginFile(), program, 0o755); err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	ec2, _ := c.EC2()
	o.settings = map[string]string{
		"MY_NODE_NAME": machine, "CLUSTER_NAME": "netns", "KUBECONFIG": c.UserConfig(account.IPAMD), "AWS_ENDPOINT_URL_EC2": ec2,
		"VPC_CNI_SOCKET": o.socket(), "VPC_CNI_STATE_DIR": o.file("state"),
		"HOST_CNI_CONFDIR_PATH": o.file("net.d"), "HOST_CNI_BIN_PATH": o.file("bin"),
		"AWS_VPC_K8S_PLUGIN_LOG_FILE": filepath.Join(logs, "plugin.log"),
	}
	if o.ns, err = netlab.Open(place.Namespace); err != nil {
		return nil, err
	}
	o.mounts, err = netlab.NewMounts(func() error { return nil })
	return o, err
}

func (o *ours) file(name string) string    { return filepath.Join(o.dir, name) }
func (o *ours) socket() string             { return o.file("cni.sock") }
func (o *ours) program(name string) string { return filepath.Join(os.Getenv(netns.BinVar), name) }
func (o *ours) pluginDir() string          { return o.file("bin") }
func (o *ours) pluginFile() string         { return o.file("bin/aws-cni") }
func (o *ours) Network() *netlab.Namespace { return o.ns }
func (o *ours) PID() int                   { return o.daemon.Process.Pid }
func (o *ours) Close() error               { return errors.Join(o.Stop(), o.mounts.Close(), o.ns.Close()) }
func (o *ours) conflist(context.Context) ([]byte, error) {
	return os.ReadFile(o.file("net.d/10-aws.conflist"))
}

func (o *ours) Set(settings map[string]string) {
	maps.Copy(o.settings, settings)
	maps.DeleteFunc(o.settings, func(_, value string) bool { return value == cluster.Unset })
}

func (o *ours) Launch() error {
	log, err := os.OpenFile(filepath.Join(o.logs, "ipamd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of daemon: %w", err)
	}
	cmd := exec.Command(o.program("ipamd"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, name := range slices.Sorted(maps.Keys(o.settings)) {
		cmd.Env = append(cmd.Env, name+"="+o.settings[name])
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := o.mounts.Start(o.ns, cmd); err != nil {
		return errors.Join(fmt.Errorf("start daemon of %s: %w", o.name, err), log.Close())
	}
	ended := make(chan struct{})
	o.daemon, o.ended = cmd, ended
	go func() {
		defer close(ended)
		_, _ = cmd.Wait(), log.Close() // it is killed, or whoever waits for it says so
	}()
	return nil
}

// startTimeout is how long a daemon may take until it serves, and startPoll how often it is asked.
const (
	startTimeout = 2 * time.Minute
	startPoll    = 50 * time.Millisecond
)

func (o *ours) Start(ctx context.Context) error {
	if err := o.Launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !o.serves(ctx) {
		select {
		case <-o.ended:
			return fmt.Errorf("daemon of %s ended by itself: %s; its log is in %s", o.name, o.daemon.ProcessState, o.logs)
		case <-ctx.Done():
			return fmt.Errorf("wait for daemon of %s: %w; its log is in %s", o.name, ctx.Err(), o.logs)
		case <-time.After(startPoll):
		}
	}
	return nil
}

// serves tells whether the network configuration is there and the plugin is answered.
func (o *ours) serves(ctx context.Context) bool {
	if _, err := o.conflist(ctx); err != nil {
		return false
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", o.socket())
	return err == nil && conn.Close() == nil
}

func (o *ours) Stop() error {
	if o.daemon == nil {
		return nil
	}
	if err := o.daemon.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill daemon of %s: %w", o.name, err)
	}
	<-o.ended
	o.daemon = nil
	return nil
}

func (o *ours) Exec(ctx context.Context, cmd *exec.Cmd) error {
	if err := o.mounts.Start(o.ns, cmd); err != nil {
		return fmt.Errorf("start %s on %s: %w", filepath.Base(cmd.Path), o.name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	return cmd.Wait()
}

func (o *ours) room() (*netlab.Namespace, string, error) {
	o.rooms++
	path := filepath.Join(o.file("netns"), "room-"+strconv.Itoa(o.rooms))
	ns, err := netlab.New(path)
	return ns, path, err
}
