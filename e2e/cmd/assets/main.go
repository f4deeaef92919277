// Command assets prints the folder that holds kube-apiserver and etcd, which it builds first where there is none. Progress goes to
// standard error.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vpc-cni/vpc-cni/e2e/assets"
)

func main() {
	module := flag.String("module", "e2e/controlplane", "folder of the module that pins kube-apiserver and etcd")
	flag.Parse()
	os.Exit(find(*module))
}

// find prints the folder and gives the exit code.
func find(module string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := assets.Ensure(ctx, module, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "assets: %v\n", err)
		return 1
	}
	fmt.Println(dir)
	return 0
}
