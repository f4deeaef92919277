// Command policygate is a default-deny policy agent for one node; see package policygate. It runs in the node's network namespace,
// writes events to standard output as JSON lines and logs to standard error.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/e2e/podapi"
	"github.com/vpc-cni/vpc-cni/e2e/policygate"
)

func main() { os.Exit(guarded()) }

// guarded runs until it is told to end, and gives the exit code.
func guarded() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Error("policy agent ends", "err", err)
		return 1
	}
	return 0
}

func run(ctx context.Context) error {
	node := flag.String("node", "", "name of the node whose pods are gated")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	annotation := flag.Bool("annotation", true, "read the CNI's annotations; false: only what kubelet and Calico write")
	keys := flag.String("keys", policygate.AWSPodIPs, "annotation keys of the CNI, in order of trust, joined by commas")
	deny := flag.Bool("default-deny", true, "drop the traffic of pods whose address is not known")
	views := flag.Bool("views", false, "tell what each kind of reader makes of every pod, whatever this agent reads itself")
	flag.Parse()

	client, err := podapi.FromKubeconfig(*kubeconfig)
	if err != nil {
		return err
	}
	reader, strictest := policygate.Reader{}, policygate.Reader{Keys: strings.Split(*keys, ",")}
	if *annotation {
		reader.Keys = strings.Split(*keys, ",")
	}
	gate := policygate.New(policygate.Options{
		Node: *node, Reader: reader, DefaultDeny: *deny, Views: *views, All: strictest, Events: event.NewLog(os.Stdout),
	}, client)
	return gate.Run(ctx)
}
