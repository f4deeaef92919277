package podnet

import "github.com/vpc-cni/vpc-cni/ipamd/api"

// Around carries out one change of the kernel by calling run, once or not at all, and passes on its error. Nil just calls
// it. Tests end the process there.
type Around func(point string, run func() error) error

func (a Around) do(point string, run func() error) error {
	if a == nil {
		return run()
	}
	return a(point, run)
}

// Setup is Around's Setup with nothing around the changes.
func Setup(path, ifName string, recipe api.PodNetwork, may May) (Pair, error) {
	return Around(nil).Setup(path, ifName, recipe, may)
}

// Teardown is Around's Teardown with nothing around the changes.
func Teardown(path, ifName string) error { return Around(nil).Teardown(path, ifName) }
