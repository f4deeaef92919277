// Command controlplane runs kube-apiserver and etcd in the network namespace that it is started in, and writes a kubeconfig for
// each of the harness's programs. It prints one JSON line when it is ready and runs until SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/vpc-cni/vpc-cni/e2e/apiserver"
)

func main() { os.Exit(guarded()) }

// guarded runs until it is told to end, and gives the exit code.
func guarded() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Error("control plane ends", "err", err)
		return 1
	}
	return 0
}

func run(ctx context.Context) error {
	address := flag.String("address", "127.0.0.1:6443", "address and port to listen on")
	dir := flag.String("dir", "", "folder of certificates, kubeconfigs and etcd's data")
	audit := flag.String("audit", "", "file for an audit log of pods")
	flag.Parse()

	at, err := netip.ParseAddrPort(*address)
	if err != nil {
		return fmt.Errorf("read -address: %w", err)
	}
	server, err := apiserver.Start(apiserver.Options{Address: at, Dir: *dir, Log: os.Stderr, Audit: *audit})
	if err != nil {
		return err
	}
	if err := server.Kubeconfigs(ctx); err != nil {
		_ = server.Stop() // the users' failure is the one to tell
		return err
	}
	fmt.Println(`{"kind":"ready"}`)
	<-ctx.Done()
	return server.Stop()
}
