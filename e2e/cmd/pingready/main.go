// Command pingready boots the simulated cluster, measures ping-ready latency with the pod-IP annotation off and on, prints the
// comparison and writes the report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/e2e/cluster/netns"
	"github.com/vpc-cni/vpc-cni/e2e/pingready"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// flags are what the user may say.
type flags struct {
	pods, rounds int
	seed         uint64
	out          string
	keep         bool
	delay        sandbox.Delay
	settings     map[string]string
}

// outerPIDVar carries the process id outside the PID namespace to the inside, for the hints of -keep.
const outerPIDVar = "PINGREADY_PID"

func main() { os.Exit(guarded(parse())) }

// guarded runs until it is done or told to end, and gives the exit code.
func guarded(f flags) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, f); err != nil {
		fmt.Fprintf(os.Stderr, "pingready: %v\n", err)
		return 1
	}
	return 0
}

func parse() flags {
	f := flags{settings: map[string]string{}}
	f.delay = sandbox.KubeletDelay()
	flag.IntVar(&f.pods, "pods", 30, "pods started at once in each round")
	flag.IntVar(&f.rounds, "rounds", 2, "rounds with the annotation off, and as many with it on")
	flag.Uint64Var(&f.seed, "seed", 1, "seed of the kubelets' delays and the VPC's choices")
	flag.StringVar(&f.out, "out", "build/pingready", "folder of the report and of all logs")
	flag.BoolVar(&f.keep, "keep", false, "keep the cluster afterwards, until ^C, and say how to look around in it")
	flag.Func("status-delay", "time from container start to status.podIP, as MIN-MAX (default 100ms-1400ms, a real kubelet's)", func(text string) (err error) {
		f.delay, err = sandbox.ParseDelay(text)
		return err
	})
	flag.Func("set", "a setting of the daemons in all rounds, as NAME=VALUE; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		f.settings[name] = value
		return nil
	})
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "pingready: unknown argument %q; -help lists the flags\n", flag.Arg(0))
		os.Exit(2)
	}
	return f
}

func run(ctx context.Context, f flags) error {
	options, err := f.cluster()
	if err != nil {
		return err
	}
	if capacity := pingready.Capacity(options.Info()); f.pods > capacity { // before a minute's work
		return &pingready.CapacityError{Pods: f.pods, Capacity: capacity}
	}
	if f.pods < 1 || f.rounds < 1 {
		return fmt.Errorf("read flags: -pods %d and -rounds %d must be at least 1", f.pods, f.rounds)
	}
	if os.Getenv(outerPIDVar) == "" {
		if err := netns.Prepare(ctx, os.Stderr); err != nil {
			return err
		}
		if err := os.Setenv(outerPIDVar, strconv.Itoa(os.Getpid())); err != nil {
			return fmt.Errorf("note process id: %w", err)
		}
	}
	netlab.Isolate()
	fmt.Printf("booting a simulated cluster of %d %s nodes; logs are in %s\n", options.Nodes, options.InstanceType, options.Logs)
	c, err := netns.Start(ctx, options)
	if err != nil {
		return err
	}
	err = measure(ctx, c, f, options)
	if f.keep && ctx.Err() == nil {
		if err != nil {
			fmt.Fprintf(os.Stderr, "pingready: %v\n", err)
		}
		lookAround(ctx, c)
	}
	return errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
}

// cooldownDefault is the daemons' default, in seconds.
const cooldownDefault = "30"

// The daemons' settings that the measurement must know too.
const (
	cooldownVar = "IP_COOLDOWN_PERIOD"
	keysVar     = "ANNOTATE_POD_IP_KEYS"
)

// cluster is the cluster to boot. Its settings are an operator's who expects bursts: every address that the instance type
// has room for is kept on the node, so that no pod of a round waits for EC2.
func (f flags) cluster() (netns.Options, error) {
	out, err := filepath.Abs(f.out)
	if err != nil {
		return netns.Options{}, fmt.Errorf("read -out: %w", err)
	}
	options := netns.Options{
		Logs: filepath.Join(out, "logs"), Seed: f.seed, StatusDelay: &f.delay, Out: os.Stdout,
		Policy: cluster.Policy{Annotation: true, DefaultDeny: true},
	}.WithDefaults()
	options.Settings = map[string]string{
		"MINIMUM_IP_TARGET": strconv.Itoa(options.Info().Nodes[0].Capacity),
		cooldownVar:         cooldownDefault,
		"ANNOTATE_POD_IP":   "false",
	}
	maps.Copy(options.Settings, f.settings)
	if keys := options.Settings[keysVar]; keys != "" {
		options.Keys = keys
	}
	return options, nil
}

func measure(ctx context.Context, c *netns.Cluster, f flags, options netns.Options) error {
	ctx, cancel := c.Guard(ctx)
	defer cancel()
	cooldown, err := strconv.Atoi(options.Settings[cooldownVar])
	if err != nil {
		return fmt.Errorf("read -set %s: %w", cooldownVar, err)
	}
	key, _, _ := strings.Cut(options.Keys, ",")
	report, err := pingready.Run(ctx, c, pingready.Options{
		Pods: f.pods, Rounds: pingready.Alternate(f.rounds), Key: strings.TrimSpace(key),
		Cooldown: time.Duration(cooldown) * time.Second, Seed: f.seed, Out: os.Stdout,
	})
	if err != nil {
		return err
	}
	report.Environment = environment(f, options)
	if err := report.Write(f.out); err != nil {
		return err
	}
	fmt.Printf("\n%s\nreport: %s/report.{json,md,svg}\n", report.Table(), f.out)
	return nil
}

func environment(f flags, options netns.Options) pingready.Environment {
	said := map[string]string{}
	flag.VisitAll(func(fl *flag.Flag) { said["-"+fl.Name] = fl.Value.String() })
	delete(said, "-set") // its values are among the settings below
	said["-status-delay"] = f.delay.String()
	said["instance-type"] = options.InstanceType
	said["niceness of node programs"] = strconv.Itoa(netns.Niceness)
	maps.Copy(said, options.Settings)
	said["ANNOTATE_POD_IP"] = "alternates"
	var name unix.Utsname
	kernel := "unknown"
	if err := unix.Uname(&name); err == nil {
		kernel = unix.ByteSliceToString(name.Release[:])
	}
	return pingready.Environment{
		Cluster: netns.Kind, Kernel: kernel, Go: runtime.Version(), Cores: runtime.NumCPU(), Seed: f.seed, Flags: said,
	}
}

// lookAround says how to get into the cluster, and waits for ^C.
func lookAround(ctx context.Context, c *netns.Cluster) {
	outer := os.Getenv(outerPIDVar)
	fmt.Printf("\nThe cluster stays until ^C. From another terminal, its mount and PID namespaces are entered with\n\n"+
		"    nsenter --target $(pgrep -P %s) --mount --pid%s sh\n\nand in there:\n\n%s\n", outer, userFlag(), c.Hints())
	<-ctx.Done()
}

// userFlag is what nsenter needs besides where an ordinary user runs this.
func userFlag() string {
	if text, err := os.ReadFile("/proc/self/uid_map"); err == nil && len(text) > 0 {
		var inside, outside, length uint32
		if n, _ := fmt.Sscan(string(text), &inside, &outside, &length); n == 3 && outside != 0 {
			return " --user --preserve-credentials"
		}
	}
	return ""
}
