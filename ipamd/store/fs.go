package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// ErrNoFile says that a path is taken by something that is no regular file: a folder, a pipe, a socket.
var ErrNoFile = errors.New("not a regular file")

// FS is what a store needs of a file system. Errors for files that are not there are fs.ErrNotExist, for folders and the like
// in their place ErrNoFile.
type FS interface {
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte, mode fs.FileMode) error // creates or truncates; makes the folder
	Rename(from, to string) error                               // replaces to
	Remove(name string) error
}

// OS is the machine's file system.
type OS struct{}

// ReadFile reads a whole file.
func (OS) ReadFile(name string) ([]byte, error) {
	if err := regular(name); err != nil {
		return nil, err
	}
	return os.ReadFile(name)
}

// regular refuses what is there and is no file, before it is opened: opening a pipe would never end.
func regular(name string) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("open %s: %w", name, ErrNoFile)
	}
	return nil
}

// WriteFile writes a whole file; one that is there already gets the mode too. A folder that somebody removed is made again.
func (OS) WriteFile(name string, data []byte, mode fs.FileMode) error {
	if err := regular(name); err != nil {
		return err
	}
	err := os.WriteFile(name, data, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		err = os.WriteFile(name, data, mode)
	}
	if err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// Rename moves a file.
func (OS) Rename(from, to string) error {
	err := os.Rename(from, to)
	if info, look := os.Lstat(to); err != nil && look == nil && info.IsDir() {
		return errors.Join(err, ErrNoFile)
	}
	return err
}

// Remove deletes a file.
func (OS) Remove(name string) error { return os.Remove(name) }

// Memory is a file system for simulations. It may be used from several goroutines.
type Memory struct {
	// Fail, where set before the first use, is asked before each step and may refuse it. A write is two steps, "write" and
	// "written": one refused at the second leaves a file cut in half.
	Fail func(op, name string) error

	mu    sync.Mutex
	files map[string][]byte
}

// NewMemory makes an empty one.
func NewMemory() *Memory { return &Memory{files: map[string][]byte{}} }

func (m *Memory) ask(op, name string) error {
	if m.Fail == nil {
		return nil
	}
	return m.Fail(op, name)
}

// ReadFile reads a whole file.
func (m *Memory) ReadFile(name string) ([]byte, error) {
	if err := m.ask("read", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.files[name]
	if !ok {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	return slices.Clone(data), nil
}

// WriteFile writes a whole file.
func (m *Memory) WriteFile(name string, data []byte, _ fs.FileMode) error {
	if err := m.ask("write", name); err != nil {
		return err
	}
	m.set(name, data[:len(data)/2])
	if err := m.ask("written", name); err != nil {
		return err
	}
	m.set(name, data)
	return nil
}

func (m *Memory) set(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = slices.Clone(data)
}

// Rename moves a file.
func (m *Memory) Rename(from, to string) error {
	if err := m.ask("rename", from); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.files[from]
	if !ok {
		return fmt.Errorf("rename %s: %w", from, fs.ErrNotExist)
	}
	m.files[to] = data
	delete(m.files, from)
	return nil
}

// Remove deletes a file.
func (m *Memory) Remove(name string) error {
	if err := m.ask("remove", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[name]; !ok {
		return fmt.Errorf("remove %s: %w", name, fs.ErrNotExist)
	}
	delete(m.files, name)
	return nil
}

// Names lists the files, ascending.
func (m *Memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files))
}
