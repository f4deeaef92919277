package compare_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// How often the plugins are executed.
const (
	execBlocks   = 30
	execsInBlock = 10
)

// BenchmarkExec sets the two plugins' size and the time of an exec that does nothing beside each other.
func BenchmarkExec(b *testing.B) {
	record := figures.Record(b, "exec")
	plugins := map[string]string{
		figures.Ours:      (&ours{}).program("aws-cni"),
		figures.Incumbent: (&incumbent{}).pluginFile(),
	}
	for side, path := range plugins {
		info, err := os.Stat(path)
		check(b, err)
		record.Add(figures.By(side, figures.PluginSize), 0, float64(info.Size())/1e6)
	}
	quiet(b)
	for block := range execBlocks {
		for i := range execsInBlock * len(plugins) {
			side := figures.Sides()[(i+block)%len(plugins)]
			cmd := exec.Command(plugins[side])
			cmd.Env = []string{"CNI_COMMAND=VERSION"}
			began := time.Now()
			output, err := cmd.Output()
			took := time.Since(began)
			if err != nil {
				b.Fatalf("%s: %v: %s", plugins[side], err, output)
			}
			record.Times(figures.By(side, figures.Version), block, took)
		}
	}
}
