package dataplane

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// Sweep removes what a plane left in its folder when its program was killed: adopted links go back where they were found, links
// into namespaces that others made are deleted, then every namespace of the folder is removed. No plane may run there.
func Sweep(dir string) error {
	errs := []error{GiveBack(dir)}
	left, err := filepath.Glob(filepath.Join(dir, "netns", "*"))
	if err != nil {
		return fmt.Errorf("look for namespaces in %s: %w", dir, err)
	}
	for _, path := range left {
		if strings.HasPrefix(filepath.Base(path), fabricPrefix) {
			errs = append(errs, deletePorts(path))
		}
	}
	for _, path := range left {
		errs = append(errs, netlab.Remove(path))
	}
	return errors.Join(errs...)
}

// deletePorts deletes a fabric's links here and now: the kernel takes its time over those of a namespace that ends, and their
// other ends would be in the way of new ones.
func deletePorts(path string) error {
	ns, err := netlab.Open(path)
	if err != nil {
		return nil // only a file: the namespace is gone
	}
	defer ns.Close()
	h, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	links, err := uninterrupted(h.LinkList)
	if err != nil {
		return fmt.Errorf("read links of %s: %w", path, err)
	}
	for _, link := range links {
		if link.Type() == "veth" {
			if err := gone(netlab.DelLink(ns, link.Attrs().Name)); err != nil {
				return err
			}
		}
	}
	return nil
}
