// Command aws-cni is the CNI plugin: the container runtime executes it once for every ADD, DEL, CHECK, GC and STATUS of a
// pod's sandbox. See package cni.
package main

import (
	"os"

	"github.com/vpc-cni/vpc-cni/cni"
)

func main() {
	os.Exit(cni.Main(os.Getenv("CNI_COMMAND"), nil)) //nolint:forbidigo // CNI passes its command so
}
