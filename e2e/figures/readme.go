package figures

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// begin and end are the markers between which the table stands in the README.
func (t Table) begin() string { return "<!-- " + t.Marker + ":begin -->\n" }
func (t Table) end() string   { return "<!-- " + t.Marker + ":end -->" }

func (t Table) errMarkers() error {
	return fmt.Errorf("the README has no line %s with a line %s below it: put the markers back", strings.TrimSpace(t.begin()), t.end())
}

// Splice puts the table's text between the README's markers.
func (t Table) Splice(readme, text string) (string, error) {
	head, rest, found := strings.Cut(readme, t.begin())
	_, tail, closed := strings.Cut(rest, t.end())
	if !found || !closed {
		return "", t.errMarkers()
	}
	return head + t.begin() + strings.TrimSpace(text) + "\n" + t.end() + tail, nil
}

// Rewrite puts the table's text into the README, which it replaces as a whole or not at all.
func (t Table) Rewrite(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read README: %w", err)
	}
	changed, err := t.Splice(string(text), table)
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
func (t Table) Check(readme string) error {
	_, rest, found := strings.Cut(readme, t.begin())
	block, _, closed := strings.Cut(rest, t.end())
	if !found || !closed {
		return t.errMarkers()
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
	rows := t.Rows
	if len(table) != len(rows)+2 || !slices.Equal(table[0], header()) {
		return fmt.Errorf("the README's table of figures has %d lines or another header; `make %s` writes one with %d rows and %q", len(table), t.Target, len(rows), header())
	}
	var errs []error
	for i, row := range rows {
		cells := table[i+2]
		if len(cells) != len(header()) || cells[0] != row.Name || cells[1] != row.goal() || cells[2] == "" {
			errs = append(errs, fmt.Errorf("the README's row of figures %q is not that of %q, goal %q: run `make %s`", cells, row.Name, row.goal(), t.Target))
		}
	}
	return errors.Join(errs...)
}
