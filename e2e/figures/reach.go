package figures

import (
	"fmt"
	"strconv"
	"strings"
)

// Modes of the reach group: how the annotation is set.
const (
	ReachOff  = "off"
	ReachOn   = "on"
	ReachWait = "on, ADD waits"
)

// Modes are all, in the order in which they are shown.
func Modes() []string { return []string{ReachOff, ReachOn, ReachWait} }

// Reached is one figure of a burst: with the annotation so, and the API server so many milliseconds away.
func Reached(what, unit, mode string, delay int) Series {
	return Series{fmt.Sprintf("%s, annotation %s, API %d ms away", what, mode, delay), unit}
}

// What is told of each burst.
const (
	ReachFailed50   = "failed pings, p50"
	ReachFailed99   = "failed pings, p99"
	ReachDropped    = "dropped by the policy, for each pod"
	ReachReply50    = "first reply after start, p50"
	ReachReply99    = "first reply after start, p99"
	ReachVisible    = "annotation visible, p99"
	ReachProgrammed = "policy programmed, p99"
	ReachStart      = "container start, p99"
	ReachLate       = "started before the policy"
	ReachCPU        = "daemon's CPU for each pod"
	ReachCalls      = "API calls for each pod"
)

// reachColumns are the matrix' columns.
func reachColumns() []Series {
	return []Series{
		{ReachFailed50, "pings"}, {ReachFailed99, "pings"}, {ReachDropped, "packets"}, {ReachReply50, "ms"}, {ReachReply99, "ms"},
		{ReachVisible, "ms"}, {ReachProgrammed, "ms"}, {ReachStart, "ms"}, {ReachLate, "%"}, {ReachCPU, "ms"}, {ReachCalls, "calls"},
	}
}

// reachRows are what is promised of the bursts; Matrix has the rest.
func reachRows() (rows []Row) {
	const delay = 20 // ms, of the promise
	of := func(what, unit, mode string) Series { return Reached(what, unit, mode, delay) }
	const burst = "110 pods at once, API 20 ms away, annotation "
	for _, mode := range []string{ReachOn, ReachWait} {
		// At most one in a hundred: programmed before the container's first packet at p99.
		rows = append(rows, Row{"reach", burst + mode + ": pods that start before their policy is programmed", of(ReachLate, "%", mode), Series{}, atMost(1)})
	}
	return append(rows,
		Row{"reach", burst + "on: packets that the policy drops, for each pod", of(ReachDropped, "packets", ReachOn), Series{}, Goal{}},
		Row{"reach", burst + "on: API calls for each pod", of(ReachCalls, "calls", ReachOn), Series{}, Goal{}},
		Row{"reach", burst + "on: CPU of the daemon for each pod, to off", of(ReachCPU, "ms", ReachOn), of(ReachCPU, "ms", ReachOff), Goal{}},
	)
}

// Matrix is the table of the bursts: the medians of the rounds' figures, by how far the API server is and how the annotation is
// set. It is empty where the group was not measured.
func Matrix(measured map[string]Measured) [][]string {
	m, ok := measured["reach"]
	if !ok {
		return nil
	}
	header := []string{"API away, ms", "annotation"}
	for _, column := range reachColumns() {
		header = append(header, column.Name+", "+column.Unit)
	}
	table := [][]string{header}
	series := m.series()
	for _, delay := range Delays() {
		for _, mode := range Modes() {
			row := []string{strconv.Itoa(delay), mode}
			for _, column := range reachColumns() {
				cell := ""
				if values := series[Reached(column.Name, column.Unit, mode, delay).Name].all(); len(values) > 0 {
					cell = number(estimate(values).Center, column.Unit)
				}
				row = append(row, cell)
			}
			table = append(table, row)
		}
	}
	return table
}

// matrixText is the matrix for a terminal.
func matrixText(table [][]string) string {
	var out strings.Builder
	for _, row := range table {
		out.WriteString(strings.Join(row, " | ") + "\n")
	}
	return out.String()
}

// matrixMarkdown is the matrix for the README, "" without one.
func matrixMarkdown(table [][]string) string {
	if len(table) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("\nThe bursts of *reach*, each figure the median of its rounds; stages are after ADD's exec, pings those of both directions together:\n\n")
	for i, row := range table {
		out.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			out.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return out.String()
}
