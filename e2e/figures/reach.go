package figures

import "fmt"

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
	ReachFailed50 = "failed pings, p50 of the pods"
	ReachFailed99 = "failed pings, p99 of the pods"
	ReachReply50  = "first reply after the start, p50"
	ReachReply99  = "first reply after the start, p99"
	ReachLate     = "pods that started before their policy was programmed"
	ReachCPU      = "CPU of the daemon for each pod"
	ReachCalls    = "API calls for each pod's annotation"
)

// ReachStages are the moments of a pod's start, p99 of a round's pods after ADD's exec.
func ReachStages() []string {
	return []string{"annotation visible", "policy programmed", "container start"}
}

// reachRows: what is far away costs time, and never pings once ADD waits.
func reachRows() (rows []Row) {
	add := func(delay int, mode, what, unit string, goal Goal) {
		name := fmt.Sprintf("110 pods at once, API %d ms away, annotation %s: %s", delay, mode, what)
		rows = append(rows, Row{Group: "reach", Name: name, Of: Reached(what, unit, mode, delay), Goal: goal})
	}
	for _, delay := range Delays() {
		for _, mode := range Modes() {
			add(delay, mode, ReachFailed50, "pings", Goal{})
			add(delay, mode, ReachFailed99, "pings", Goal{})
			add(delay, mode, ReachReply50, "ms", Goal{})
			add(delay, mode, ReachReply99, "ms", Goal{})
			goal := Goal{}
			if delay == 20 && mode != ReachOff {
				goal = atMost(1) // programmed before the first packet, at p99
			}
			add(delay, mode, ReachLate, "%", goal)
			for _, stage := range ReachStages() {
				if mode != ReachOff || stage != "annotation visible" {
					add(delay, mode, stage+", p99", "ms", Goal{})
				}
			}
			add(delay, mode, ReachCPU, "ms", Goal{})
			if mode != ReachOff {
				add(delay, mode, ReachCalls, "calls", Goal{})
			}
		}
	}
	return rows
}
