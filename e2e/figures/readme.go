package figures

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The markers between which the README's table stands.
const (
	begin = "<!-- figures:begin -->\n"
	end   = "<!-- figures:end -->"
)

var errMarkers = errors.New("the README has no line <!-- figures:begin --> with a line <!-- figures:end --> below it: put the markers back")

// Splice puts a table between the README's markers.
func Splice(readme, table string) (string, error) {
	head, rest, found := strings.Cut(readme, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", errMarkers
	}
	return head + begin + strings.TrimSpace(table) + "\n" + end + tail, nil
}

// Rewrite puts a table into the README, which it replaces as a whole or not at all.
func Rewrite(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read README: %w", err)
	}
	changed, err := Splice(string(text), table)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(changed), 0o644); err != nil {
		return fmt.Errorf("write README: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write README: %w", err)
	}
	return nil
}

// Check checks the form of the README's table: one line for each row, with its name and goal as the code has them, and a
// figure. What was measured is the machine's, so it is not checked; nor is when.
func Check(readme string) error {
	_, rest, found := strings.Cut(readme, begin)
	block, _, closed := strings.Cut(rest, end)
	if !found || !closed {
		return errMarkers
	}
	var table [][]string
	for text := range strings.Lines(block) {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "|") {
			cells := strings.Split(strings.Trim(text, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			table = append(table, cells)
		} else if len(table) > 0 {
			break // what follows the rows is not promised
		}
	}
	rows := Rows()
	if len(table) != len(rows)+2 || !slices.Equal(table[0], header()) {
		return fmt.Errorf("the README's table of figures has %d lines or another header; `make bench` writes one with %d rows and %q", len(table), len(rows), header())
	}
	var errs []error
	for i, row := range rows {
		cells := table[i+2]
		if len(cells) != len(header()) || cells[0] != row.Name || cells[1] != row.goal() || cells[2] == "" {
			errs = append(errs, fmt.Errorf("the README's row of figures %q is not that of %q, goal %q: run `make bench`", cells, row.Name, row.goal()))
		}
	}
	return errors.Join(errs...)
}
