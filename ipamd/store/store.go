// Package store keeps the allocations on disk: load, save, migrate, quarantine.
//
// It owns the file and its format. It never decides what is in it (the pool does), and never syncs: the file lives under
// /run, has to survive SIGKILL and not a power loss, after which every sandbox is gone anyway. Start with Store; format.go
// has the document, fs.go the four calls that it needs of a file system.
package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"syscall"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// Mode of the file: it names pods and sandboxes, which are nobody's business but root's.
const mode fs.FileMode = 0o600

// Store is one state file. One call at a time.
type Store struct {
	fs      FS
	path    string
	steps   []step // to the version that is written; tests make some up
	encoder *encoder
}

// New makes a store of the file at path. Its folder is made when it is needed.
func New(fsys FS, path string) *Store {
	return &Store{fs: fsys, path: path, steps: steps(), encoder: newEncoder()}
}

// Path is where the file is.
func (s *Store) Path() string { return s.path }

// QuarantinedError says that the file was there and could not be understood. It was moved aside, unless MovedTo is empty.
type QuarantinedError struct {
	Path, MovedTo string
	Err           error
}

func (e *QuarantinedError) Error() string {
	where := "it could not be moved aside and will be overwritten"
	if e.MovedTo != "" {
		where = "it was moved to " + e.MovedTo
	}
	return fmt.Sprintf("read state file %s: %v; %s; pods that run keep their addresses, which are seen in the kernel; "+
		"look at the file, then delete it", e.Path, e.Err, where)
}

func (e *QuarantinedError) Unwrap() error { return e.Err }

// Load gives the last saved snapshot; found is false when there is none. A file that is truncated, damaged or of an unknown
// version is put aside: found is false and the error is *QuarantinedError. Another error means that the file could not be
// read at all.
func (s *Store) Load() (snapshot pool.Snapshot, found bool, err error) {
	data, err := s.fs.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return pool.Snapshot{}, false, nil
	}
	if err != nil && !errors.Is(err, ErrNoFile) {
		return pool.Snapshot{}, false, fmt.Errorf("read state file: %w", err)
	}
	if err == nil {
		snapshot, err = decode(data, s.steps)
	}
	if err == nil {
		return snapshot, true, nil
	}
	bad := &QuarantinedError{Path: s.path, Err: err}
	// Named by its content: the same damage twice leaves one file.
	aside, failed := s.setAside(s.path, fmt.Sprintf("%08x", crc32.ChecksumIEEE(data)))
	if failed != nil {
		bad.Err = errors.Join(bad.Err, failed)
	} else {
		bad.MovedTo = aside
	}
	return pool.Snapshot{}, false, bad
}

// asides is how many folders of one name can be put aside: a folder, other than a file, does not replace an earlier one.
const asides = 9

// setAside moves what is in the way of the state, and tells where to.
func (s *Store) setAside(path, name string) (aside string, err error) {
	for n := range asides {
		aside = fmt.Sprintf("%s.unreadable-%s", path, name)
		if n > 0 {
			aside = fmt.Sprintf("%s-%d", aside, n+1)
		}
		if err = s.fs.Rename(path, aside); err == nil {
			return aside, nil
		}
	}
	return "", fmt.Errorf("move %s aside: %w", path, err)
}

// Save replaces the file in one step: after a crash at any moment the old or the new content is there. What is no file and
// stands in its way is put aside. The snapshot's lists are the store's from then on: it compares the next one with them.
func (s *Store) Save(snapshot pool.Snapshot) error {
	data, err := s.encoder.encode(snapshot)
	if err != nil {
		return err
	}
	temp := s.path + ".new"
	write := func() error { return s.fs.WriteFile(temp, data, mode) }
	if err := s.cleared(temp, write); err != nil {
		return errors.Join(fmt.Errorf("write state file: %w", err), s.drop(temp))
	}
	replace := func() error { return s.fs.Rename(temp, s.path) }
	if err := s.cleared(s.path, replace); err != nil {
		return errors.Join(fmt.Errorf("replace state file: %w", err), s.drop(temp))
	}
	return nil
}

// cleared does a step again after it has put aside what is no file at path.
func (s *Store) cleared(path string, step func() error) error {
	err := step()
	if !errors.Is(err, ErrNoFile) {
		return err
	}
	if _, failed := s.setAside(path, "no-file"); failed != nil {
		return errors.Join(err, failed)
	}
	return step()
}

// drop removes a half-written file: on a full disk it would keep the next try from succeeding. A read-only one has none.
func (s *Store) drop(temp string) error {
	if err := s.fs.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("remove half-written state file: %w", err)
	}
	return nil
}
