package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// maxPending bounds the records of deletions that found no daemon. More than a node has pods; what does not fit is found
// by the daemon's evidence audit, only later.
const maxPending = 1024

// maxRecord bounds one record on reading, in bytes; a record that the plugin wrote has a few hundred.
const maxRecord = 64 << 10

// ErrPendingFull says that a deletion was not recorded because there are 1,024 records already.
var ErrPendingFull = errors.New("too many recorded deletions")

// PendingDel is a deletion that found no daemon: the kernel state is gone, the address is still to be released.
type PendingDel struct {
	ReleaseRequest
	At time.Time `json:"at"`
}

// LeavePending records a deletion beside the daemon's socket, one file for each attachment, complete or not at all.
// ErrPendingFull when there are 1,024 others.
func LeavePending(socket string, record PendingDel) error {
	folder := pendingFolder(socket)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make folder of recorded deletions: %w", err)
	}
	unlock, err := lockFolder(folder)
	if err != nil {
		return err
	}
	defer unlock()
	names, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("count recorded deletions: %w", err)
	}
	name := pendingName(record.Attachment)
	known := slices.ContainsFunc(names, func(e fs.DirEntry) bool { return e.Name() == name })
	if len(names) >= maxPending && !known {
		return ErrPendingFull
	}
	body, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode deletion: %w", err)
	}
	// The temporary name is fixed, so that a killed plugin leaves at most one such file; the lock makes it safe.
	temporary := filepath.Join(folder, "new")
	if err := os.WriteFile(temporary, body, 0o600); err != nil {
		return fmt.Errorf("write deletion: %w", err)
	}
	if err := os.Rename(temporary, filepath.Join(folder, name)); err != nil {
		return fmt.Errorf("record deletion: %w", err)
	}
	return nil
}

// CollectPending reads the recorded deletions, oldest first. Unreadable ones are removed and reported in the error, which
// may come together with readable ones. Release each, then RemovePending.
func CollectPending(socket string) ([]PendingDel, error) {
	folder := pendingFolder(socket)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := lockFolder(folder)
	if err != nil {
		return nil, err
	}
	defer unlock()
	names, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list recorded deletions: %w", err)
	}
	var records []PendingDel
	var bad []error
	for _, entry := range names {
		path := filepath.Join(folder, entry.Name())
		record, err := readPending(path)
		if err == nil && entry.Name() != pendingName(record.Attachment) {
			err = errors.New("name and contents differ")
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("drop recorded deletion %s: %w", path, err), os.RemoveAll(path))
			continue
		}
		records = append(records, record)
	}
	slices.SortStableFunc(records, func(a, b PendingDel) int { return a.At.Compare(b.At) })
	return records, errors.Join(bad...)
}

// RemovePending forgets a recorded deletion; none is no error.
func RemovePending(socket string, a Attachment) error {
	err := os.Remove(filepath.Join(pendingFolder(socket), pendingName(a)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget recorded deletion: %w", err)
	}
	return nil
}

func pendingFolder(socket string) string {
	return filepath.Join(filepath.Dir(socket), "pending-del")
}

// pendingName gives an attachment's file name: a hash, because a network name may be longer than a file name.
func pendingName(a Attachment) string {
	hash := fnv.New128a()
	fmt.Fprintf(hash, "%q %q %q", a.Network, a.ContainerID, a.IfName)
	return fmt.Sprintf("%x.json", hash.Sum(nil))
}

func readPending(path string) (PendingDel, error) {
	file, err := os.Open(path)
	if err != nil {
		return PendingDel{}, err
	}
	defer file.Close()
	body, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err != nil {
		return PendingDel{}, err
	}
	var record PendingDel
	err = json.Unmarshal(body, &record)
	return record, err
}

// lockFolder takes the folder's lock, which the kernel gives back when a holder dies.
func lockFolder(folder string) (unlock func(), err error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("open folder of recorded deletions: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock folder of recorded deletions: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
