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

// lockPatience is how long a folder's lock is waited for: writing a record takes well under a millisecond, and a node's worth
// of DELs write theirs in a fraction of a second. lockBackoff is the pause between two looks: a blocking flock(2) could not
// be given up.
const (
	lockPatience = 1500 * time.Millisecond
	lockBackoff  = 5 * time.Millisecond
)

// ErrPendingFull says that a deletion was not recorded because there are 1,024 records already.
var ErrPendingFull = errors.New("too many recorded deletions")

// PendingDel is a deletion that found no daemon: the kernel state is gone, the address is still to be released.
type PendingDel struct {
	ReleaseRequest
	At time.Time `json:"at"`
}

// LeavePending records a deletion beside the daemon's socket, one file for each attachment, complete or not at all.
// ErrPendingFull when there are 1,024 others; an error too when another plugin holds the folder's lock for more than 1.5 s.
func (a Around) LeavePending(socket string, record PendingDel) error {
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
	if err := a.do("pending write", func() error { return os.WriteFile(temporary, body, 0o600) }); err != nil {
		return fmt.Errorf("write deletion: %w", err)
	}
	if err := a.do("pending replace", func() error { return os.Rename(temporary, filepath.Join(folder, name)) }); err != nil {
		return fmt.Errorf("record deletion: %w", err)
	}
	return nil
}

// LeavePending is Around's LeavePending with nothing around the changes of files.
func LeavePending(socket string, record PendingDel) error {
	return Around(nil).LeavePending(socket, record)
}

// CollectPending reads the recorded deletions, oldest first. Those that make no sense are removed and reported in the error, which
// may come together with others; one that could not be read for the moment is reported and stays. Release each, then
// RemovePending.
func CollectPending(socket string) ([]PendingDel, error) {
	folder := pendingFolder(socket)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.IsDir():
		return nil, moveAside(folder)
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
		record, err := readPending(path, entry)
		if err == nil && entry.Name() != pendingName(record.Attachment) {
			err = errors.New("name and contents differ")
		}
		var unread *fs.PathError
		switch {
		case errors.As(err, &unread): // too many open files, say: the next collection reads it
			bad = append(bad, fmt.Errorf("read recorded deletion: %w", err))
			continue
		case err != nil:
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

// moveAside makes room for the folder where something else has its name.
func moveAside(path string) error {
	aside := path + ".unreadable"
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("move %s aside, which is no folder: %w", path, err)
	}
	return fmt.Errorf("read recorded deletions: %s is no folder; it was moved to %s: look at it, then delete it", path, aside)
}

func readPending(path string, entry fs.DirEntry) (PendingDel, error) {
	if !entry.Type().IsRegular() { // opening a named pipe would never end
		return PendingDel{}, errors.New("it is not a regular file")
	}
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

// lockFolder takes the folder's lock, which the kernel gives back when a holder dies. It waits at most lockPatience: a
// plugin that is frozen while it holds the lock must stop neither DELs nor a daemon.
func lockFolder(folder string) (unlock func(), err error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("open folder of recorded deletions: %w", err)
	}
	for deadline := time.Now().Add(lockPatience); ; {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		busy := errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR)
		if !busy || time.Now().After(deadline) {
			break
		}
		time.Sleep(lockBackoff) //nolint:forbidigo // the backoff that the constant documents
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock folder of recorded deletions: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
