// Command assets prints the folder that holds kube-apiserver and etcd, or (-incumbent) the incumbent's programs, which it builds
// first where there is none. Progress goes to standard error.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vpc-cni/vpc-cni/e2e/assets"
)

func main() {
	module := flag.String("module", "", "folder of the module that pins the programs (default: the set's, below the working directory)")
	incumbent := flag.Bool("incumbent", false, "the incumbent's programs, not kube-apiserver and etcd")
	flag.Parse()
	set := assets.ControlPlane()
	if *incumbent {
		set = assets.Incumbent()
	}
	os.Exit(find(set, cmp.Or(*module, set.Module)))
}

// find prints the folder and gives the exit code.
func find(set assets.Set, module string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := set.Ensure(ctx, module, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "assets: %v\n", err)
		return 1
	}
	fmt.Println(dir)
	return 0
}
