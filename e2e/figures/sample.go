package figures

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Environment is where and when a group was measured.
type Environment struct {
	Kernel string    `json:"kernel"`
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	Go     string    `json:"go"`
	Date   time.Time `json:"date"`
	// Load is the machine's load average over a minute when the group began: above 1, somebody else was at work.
	Load float64 `json:"load"`
}

// Sample is one measured value. Samples of different series with the same block were taken side by side.
type Sample struct {
	Series string  `json:"series"`
	Unit   string  `json:"unit"`
	Block  int     `json:"block"`
	Value  float64 `json:"value"`
}

// Measured is all that one group's run recorded.
type Measured struct {
	Environment Environment
	Samples     []Sample
}

// line is one line of a group's file: the environment on the first, a sample on every other.
type line struct {
	Environment *Environment `json:"environment,omitempty"`
	*Sample
}

// file is where a group's samples are.
func file(dir, group string) string { return filepath.Join(dir, group+".jsonl") }

// write writes a group's samples, all or none: what a benchmark left that failed halfway must not pass for a measurement.
func (m Measured) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder of samples: %w", err)
	}
	out, err := os.CreateTemp(filepath.Dir(path), ".samples-*")
	if err != nil {
		return fmt.Errorf("make file of samples: %w", err)
	}
	defer func() { _ = os.Remove(out.Name()) }() // nothing is left to remove after the rename
	buffered := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffered)
	err = encoder.Encode(line{Environment: &m.Environment})
	for i := range m.Samples {
		err = errors.Join(err, encoder.Encode(line{Sample: &m.Samples[i]}))
	}
	if err := errors.Join(err, buffered.Flush(), out.Chmod(0o644), out.Close()); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// Read reads the samples of the table's groups that have been measured, by group's name.
func (t Table) Read(dir string) (map[string]Measured, error) {
	all := map[string]Measured{}
	for _, g := range t.Groups {
		m, err := read(file(dir, g.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[g.Name] = m
	}
	return all, nil
}

func read(path string) (m Measured, err error) {
	in, err := os.Open(path)
	if err != nil {
		return m, fmt.Errorf("open samples: %w", err)
	}
	defer func() { _ = in.Close() }() // read only
	decoder := json.NewDecoder(in)
	for n := 1; ; n++ {
		var l line
		err := decoder.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return m, nil
		case err != nil:
			return m, fmt.Errorf("read samples in %s, line %d: %w", path, n, err)
		case l.Environment != nil:
			m.Environment = *l.Environment
		case l.Sample != nil:
			m.Samples = append(m.Samples, *l.Sample)
		}
	}
}
