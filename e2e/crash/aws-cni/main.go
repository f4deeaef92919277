// Command aws-cni is the CNI plugin with a test's orders: where CNI_ARGS names a folder (VPC_TEST_CRASH), it passes its
// effects by package crash. The released plugin knows nothing of that.
package main

import (
	"os"
	"strings"

	"github.com/vpc-cni/vpc-cni/cni"
	"github.com/vpc-cni/vpc-cni/e2e/crash"
)

func main() {
	var around cni.Around
	for pair := range strings.SplitSeq(os.Getenv("CNI_ARGS"), ";") {
		if folder, ok := strings.CutPrefix(pair, "VPC_TEST_CRASH="); ok {
			around = crash.Role{Dir: folder, Name: "plugin"}.Around()
		}
	}
	os.Exit(cni.Main(os.Getenv("CNI_COMMAND"), around))
}
