package reconcile_test

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"
)

const statePath = "/run/state.json"

var errNoSpace = errors.New("no space left on device")

// lifeDisk is the disk as one life of the daemon sees it: a process that is dead writes no more, whatever it was in the
// middle of.
type lifeDisk struct {
	n   *node
	l   *life
	ctx context.Context //nolint:containedctx // the life's own, as with a process
}

// step asks whether a step is carried out. Traps crash before and after it.
func (d *lifeDisk) step(name string) error {
	switch {
	case d.ctx.Err() != nil:
		return d.ctx.Err()
	case d.n.sprung("disk "+name, false):
		return context.Canceled
	case time.Now().Before(d.n.saves) && (d.n.full == name || d.n.full == ""):
		d.n.covered("disk refuses " + name)
		return errNoSpace
	}
	return nil
}

func (d *lifeDisk) ReadFile(name string) ([]byte, error) { return d.n.disk.ReadFile(name) }

func (d *lifeDisk) WriteFile(name string, data []byte, mode fs.FileMode) error {
	if err := d.step("open"); err != nil {
		return err
	}
	if err := d.n.disk.WriteFile(name, nil, mode); err != nil {
		return err
	}
	if d.n.sprung("disk open", true) {
		return context.Canceled
	}
	if err := d.n.disk.WriteFile(name, data[:len(data)/2], mode); err != nil {
		return err
	}
	if err := d.step("write"); err != nil {
		return err
	}
	if err := d.n.disk.WriteFile(name, data, mode); err != nil {
		return err
	}
	if d.n.sprung("disk write", true) {
		return context.Canceled
	}
	return nil
}

func (d *lifeDisk) Rename(from, to string) error {
	if err := d.step("rename"); err != nil {
		return err
	}
	if err := d.n.disk.Rename(from, to); err != nil {
		return err
	}
	if d.n.sprung("disk rename", true) {
		return context.Canceled
	}
	return nil
}

func (d *lifeDisk) Remove(name string) error {
	if err := d.step("remove"); err != nil {
		return err
	}
	return d.n.disk.Remove(name)
}

// keys gives a map's keys in order.
func keys[K comparable, V any](m map[K]V, order func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), order)
}

func cmpString(a, b string) int { return cmp.Compare(a, b) }
