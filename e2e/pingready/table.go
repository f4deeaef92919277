package pingready

import (
	"fmt"
	"slices"
	"strings"
)

// line is one line of the comparison: a figure of each pod, by knob.
type line struct {
	name   string
	sample func([]Pod) []float64
	format string
}

// lines are the figures in the order in which they are shown.
func lines() []line {
	optional := func(figure func(Pod) *float64) func([]Pod) []float64 {
		return func(pods []Pod) []float64 { return values(pods, figure) }
	}
	list := []line{
		{"failed pings in", func(pods []Pod) []float64 {
			return counts(pods, func(p Pod) float64 { return float64(p.FailedPingsIn) })
		}, "%.0f"},
		{"failed pings out", func(pods []Pod) []float64 {
			return counts(pods, func(p Pod) float64 { return float64(p.FailedPingsOut) })
		}, "%.0f"},
		{"first reply in, ms after container start", optional(func(p Pod) *float64 { return p.PingReadyIn }), "%.1f"},
		{"first reply out, ms after container start", optional(func(p Pod) *float64 { return p.PingReadyOut }), "%.1f"},
	}
	for _, s := range stages() {
		list = append(list, line{s.name + ", ms after ADD exec", optional(s.of), "%.1f"})
	}
	return list
}

// stage is one moment in the start of a pod.
type stage struct {
	name string
	of   func(Pod) *float64
}

func stages() []stage {
	return []stage{
		{"ADD done", func(p Pod) *float64 { return p.AddMS }},
		{"annotation visible", func(p Pod) *float64 { return p.AnnotationVisible }},
		{"policy programmed", func(p Pod) *float64 { return p.PolicyProgrammed }},
		{"container start", func(p Pod) *float64 { return p.ContainerStart }},
		{"status.podIP visible", func(p Pod) *float64 { return p.StatusVisible }},
	}
}

// Table is the comparison as text, one block of columns a knob.
func (r *Report) Table() string {
	rows := [][]string{{"", "off p50", "p90", "p99", "max", "on p50", "p90", "p99", "max"}}
	rows = append(rows, []string{"pods", fmt.Sprint(r.Off.Pods), "", "", "", fmt.Sprint(r.On.Pods), "", "", ""})
	for _, l := range lines() {
		row := []string{l.name}
		for _, knob := range []Knob{Off, On} {
			q := quantiles(l.sample(r.pods(knob)))
			row = append(row, show(l.format, q.P50), show(l.format, q.P90), show(l.format, q.P99), show(l.format, q.Max))
		}
		rows = append(rows, row)
	}
	return align(r.dropEmpty(rows))
}

// dropEmpty takes the p99 columns out when there are too few pods for any.
func (r *Report) dropEmpty(rows [][]string) [][]string {
	if r.Off.Pods >= enoughForP99 || r.On.Pods >= enoughForP99 {
		return rows
	}
	for i, row := range rows {
		rows[i] = slices.Concat(row[:3], row[4:7], row[8:])
	}
	return rows
}

func show(format string, value *float64) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprintf(format, *value)
}

func align(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&out, "%-*s", widths[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&out, "  %*s", widths[i+1], cell)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// markdown is the report for people.
func (r *Report) markdown() string {
	var out strings.Builder
	e := r.Environment
	fmt.Fprintf(&out, "# Ping-ready latency, pod-IP annotation off and on\n\n")
	fmt.Fprintf(&out, "Cluster %s, kernel %s, %s, %d cores, seed %d.\n\n", e.Cluster, e.Kernel, e.Go, e.Cores, e.Seed)
	fmt.Fprintf(&out, "```\n%s```\n\n", r.Table())
	out.WriteString("Every new pod pings a responder on the other node, and is pinged by it, every 10 ms from the moment its\n" +
		"container starts. A failed ping was sent and never answered. *In* is towards the new pod, *out* from it. In\n" +
		"report.json a pod's failed pings are those of both directions together, and it is ping-ready when both work; a\n" +
		"99th percentile is given from 300 pods a side on and is null below.\n\n![plots](report.svg)\n\n## Settings\n\n")
	names := make([]string, 0, len(e.Flags))
	for name := range e.Flags {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&out, "- `%s` %s\n", name, e.Flags[name])
	}
	return out.String()
}
