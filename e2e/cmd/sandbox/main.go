// Command sandbox is a tiny kubelet for one node; see package sandbox. It runs in the node's network namespace, writes events to
// standard output as JSON lines and logs to standard error.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/e2e/sandbox"
)

func main() { os.Exit(guarded()) }

// guarded runs until it is told to end, and gives the exit code.
func guarded() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Error("sandbox ends", "err", err)
		return 1
	}
	return 0
}

func run(ctx context.Context) error {
	delay := sandbox.KubeletDelay()
	options := sandbox.Options{Events: event.NewLog(os.Stdout)}
	flag.StringVar(&options.Node, "node", "", "name of the node")
	flag.StringVar(&options.Dir, "dir", "", "folder of pods, shared by all nodes")
	flag.StringVar(&options.ConfDir, "conf-dir", "/etc/cni/net.d", "folder where the network configuration appears")
	flag.StringVar(&options.BinDir, "bin-dir", "/opt/cni/bin", "folder of CNI plugins")
	flag.DurationVar(&delay.Min, "status-delay-min", delay.Min, "least time from container start to status.podIP")
	flag.DurationVar(&delay.Max, "status-delay-max", delay.Max, "most time from container start to status.podIP")
	flag.Uint64Var(&options.Seed, "seed", 1, "seed of the status delays")
	flag.DurationVar(&options.Backoff, "backoff", 0, "pause after a failed call of the plugin, doubled each time (0: one second)")
	address := flag.String("node-ip", "", "the node's own address")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	control := flag.String("control", "", "unix socket for orders")
	flag.Parse()

	ip, err := netip.ParseAddr(*address)
	if err != nil {
		return fmt.Errorf("read -node-ip: %w", err)
	}
	options.NodeIP, options.StatusDelay = ip, delay
	client, err := podapi.FromKubeconfig(*kubeconfig)
	if err != nil {
		return err
	}
	agent := sandbox.New(options, client)
	group, ctx := errgroup.WithContext(ctx)
	if *control != "" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", *control)
		if err != nil {
			return fmt.Errorf("open control socket: %w", err)
		}
		group.Go(func() error { return agent.Serve(ctx, listener) })
	}
	group.Go(func() error { return agent.Run(ctx) })
	return group.Wait()
}
