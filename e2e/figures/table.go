package figures

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// errNone says that a row's group was measured without its series.
var errNone = errors.New("no samples")

// Line is a row with what was measured.
type Line struct {
	Row
	Measured     bool // false: its group was not run
	Figure       Estimate
	OfMedian     Estimate
	BesideMedian Estimate // the medians behind a ratio
}

// Lines are all rows with what was measured of them.
func (t Table) Lines(measured map[string]Measured) ([]Line, error) {
	var lines []Line
	var errs []error
	for _, row := range t.Rows {
		l, err := row.line(measured)
		if err != nil {
			errs = append(errs, fmt.Errorf("work out %q: %w", row.Name, err))
		}
		lines = append(lines, l)
	}
	return lines, errors.Join(errs...)
}

func (r Row) line(measured map[string]Measured) (Line, error) {
	l := Line{Row: r}
	m, ok := measured[r.Group]
	if !ok {
		return l, nil
	}
	series := m.series()
	of := series[r.Of.Name]
	if len(of) == 0 {
		return l, errNone
	}
	l.OfMedian = estimate(of.all())
	l.Figure, l.Measured = l.OfMedian, true
	if r.Beside == (Series{}) {
		return l, nil
	}
	beside := series[r.Beside.Name]
	if len(beside) == 0 {
		return l, errNone
	}
	l.BesideMedian = estimate(beside.all())
	var err error
	l.Figure, err = ratio(of, beside)
	return l, err
}

// Missed tells whether the goal is missed. A median that holds does so also where its interval reaches beyond the limit:
// Verdict says that.
func (l Line) Missed() bool {
	switch l.Goal.Kind {
	case Median:
		return l.Figure.Center > l.Goal.Limit
	case Upper:
		return !l.Figure.Sure() || l.Figure.Hi > l.Goal.Limit
	case Equal:
		return l.undecided() || l.Figure.Lo > l.Goal.Limit || l.Figure.Hi < l.Goal.Limit
	default:
		return false
	}
}

// widest is how wide the interval of an Equal goal may be, as a share: a wider one holds 1 whatever is measured.
const widest = 0.2

// undecided tells whether the interval is too wide to say that two series are equal.
func (l Line) undecided() bool {
	return !l.Figure.Sure() || l.Figure.Hi-l.Figure.Lo > widest*l.Goal.Limit
}

// Verdict says whether the goal holds, and by how much it is missed.
func (l Line) Verdict() string {
	switch {
	case !l.Measured:
		return "not measured"
	case l.Goal.Kind == None:
		return ""
	case !l.Missed() && l.Goal.Kind == Median && l.Figure.Sure() && l.Figure.Hi > l.Goal.Limit:
		return "by the median"
	case !l.Missed():
		return "yes"
	case !l.Figure.Sure() && l.Goal.Kind != Median:
		return "MISSED: too few blocks"
	case l.Goal.Kind == Equal && l.Figure.Lo <= l.Goal.Limit && l.Figure.Hi >= l.Goal.Limit:
		return "MISSED: too wide an interval"
	case l.Goal.Kind == Equal:
		return "MISSED by " + percent(max(l.Figure.Lo-1, 1-l.Figure.Hi))
	case l.Goal.Kind == Upper:
		return "MISSED by " + percent(l.Figure.Hi/l.Goal.Limit-1)
	default:
		return "MISSED by " + percent(l.Figure.Center/l.Goal.Limit-1)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// goal is the goal in words.
func (r Row) goal() string {
	limit := strconv.FormatFloat(r.Goal.Limit, 'f', -1, 64) + " " + r.unit()
	switch r.Goal.Kind {
	case Median:
		return "at most " + limit
	case Upper:
		return "upper bound at most " + strconv.FormatFloat(r.Goal.Limit, 'f', 2, 64) + " " + r.unit()
	case Equal:
		return limit + ", within the interval"
	default:
		return ""
	}
}

// number gives a figure three digits or so, and a count none after the point that it does not have.
func number(v float64, unit string) string {
	if unit == "calls" {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	switch {
	case unit == "pings", unit == "requests":
		return strconv.FormatFloat(v, 'f', -1, 64)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// header of the table.
func header() []string {
	return []string{"Figure", "Goal", "Measured", "95 % interval", "Holds", "Medians behind a ratio"}
}

// cells are the line's cells.
func (l Line) cells() []string {
	cells := []string{l.Name, l.goal(), "", "", l.Verdict(), ""}
	if !l.Measured {
		return cells
	}
	unit := l.unit()
	cells[2] = number(l.Figure.Center, unit) + " " + unit
	if l.Figure.Sure() {
		cells[3] = number(l.Figure.Lo, unit) + " to " + number(l.Figure.Hi, unit)
	}
	if l.Beside != (Series{}) {
		cells[5] = fmt.Sprintf("%s, %s %s", number(l.OfMedian.Center, l.Of.Unit), number(l.BesideMedian.Center, l.Of.Unit), l.Of.Unit)
	}
	return cells
}

// Text is the table for a terminal, of all groups or of the named ones.
func Text(lines []Line, groups ...string) string {
	rows := [][]string{header()}
	for _, l := range lines {
		if len(groups) == 0 || slices.Contains(groups, l.Group) {
			rows = append(rows, l.cells())
		}
	}
	widths := make([]int, len(header()))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

// Markdown is the table for the README, with where and when it was measured.
func (t Table) Markdown(measured map[string]Measured) (string, error) {
	lines, err := t.Lines(measured)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("Measured by `make " + t.Target + "`" + where(measured) + ".\n\n")
	out.WriteString("| " + strings.Join(header(), " | ") + " |\n|" + strings.Repeat("---|", len(header())) + "\n")
	for _, l := range lines {
		cells := l.cells()
		if l.Measured && l.Missed() {
			cells[4] = "**" + cells[4] + "**"
		}
		out.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	if t.Notes != nil {
		out.WriteString("\n" + strings.TrimSpace(t.Notes(measured)) + "\n")
	}
	out.WriteString("\nHow, by group (`make " + t.Target + " ONLY=group`; raw samples in `build/bench`):\n\n")
	for _, g := range t.Groups {
		fmt.Fprintf(&out, "- *%s*: %s.\n", g.Name, g.What)
	}
	return out.String(), nil
}

// where says on what machine, and when; runs of groups on several days or machines are all named.
func where(measured map[string]Measured) string {
	var machines, dates []string
	for _, group := range slices.Sorted(maps.Keys(measured)) {
		e := measured[group].Environment
		machines = append(machines, fmt.Sprintf("Linux %s, %d cores (%s), %s", e.Kernel, e.Cores, e.CPU, e.Go))
		dates = append(dates, e.Date.Format(time.DateOnly))
	}
	slices.Sort(machines)
	slices.Sort(dates)
	machines, dates = slices.Compact(machines), slices.Compact(dates)
	if len(machines) == 0 {
		return ""
	}
	return " on " + strings.Join(machines, "; on ") + ", " + strings.Join(dates, ", ")
}
