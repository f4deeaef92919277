package figures

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The sides of the comparison. Incumbent is amazon-vpc-cni-k8s, as it is; the roundtrip group of the bench has only its scheme
// of routing rules.
const (
	Ours      = "ours"
	Incumbent = "incumbent"
	// OursWaiting is ours with an ADD that waits for the API server's answer, as the incumbent's does.
	OursWaiting = "ours, ANNOTATE_POD_IP_WAIT=1s"
)

// Sides are both.
func Sides() []string { return []string{Ours, Incumbent} }

// By is a series of one side.
func By(side string, s Series) Series { return Series{side + ": " + s.Name, s.Unit} }

// P99 is the 99th percentile of a series' blocks.
func P99(s Series) Series { return Series{s.Name + ", p99 of a block", s.Unit} }

// Sizes of the comparison.
const (
	SomePods = 30 // what comes and goes while calls are counted
)

// The spans over which EC2 calls are counted.
const (
	ThereAndBack = "0 -> 30 -> 0 -> 30 pods"
	Roll         = "roll of the daemon"
	ColdBurst    = "cold burst"
)

// Calls are the EC2 calls of a span.
func Calls(span string) Series { return Series{"EC2 calls, " + span, "calls"} }

// CallsOf are those of one action.
func CallsOf(span, action string) Series { return Series{callsOf(span) + action, "calls"} }

func callsOf(span string) string { return "EC2 calls, " + span + ", of " }

// Series of the comparison that the bench does not have.
var (
	End        = Series{"end of a pod", "ms"}
	Restart    = Series{"restart to first ADD", "ms"}
	ColdAll    = Series{"cold burst, all added", "s"}
	ColdFailed = Series{"cold burst, failed ADDs", "ADDs"}
	IdleAnon   = Series{"Anonymous of smaps_rollup", "MiB"}
)

// ReadyAfter is the time from ADD's exec to the first reply in and out, and ReadyFailed the pings that failed in both directions
// together, with an API server so many milliseconds away.
func ReadyAfter(delay int) Series {
	return Series{fmt.Sprintf("ping-ready after ADD's exec, API %d ms away", delay), "ms"}
}

// ReadyFailed is described at ReadyAfter.
func ReadyFailed(delay int) Series {
	return Series{fmt.Sprintf("failed pings of a pod, API %d ms away", delay), "pings"}
}

// Compare is this project beside the incumbent.
func Compare() Table {
	return Table{Target: "compare", Marker: "compare", Groups: compareGroups(), Rows: compareRows(), Notes: callsByAction}
}

func compareGroups() []Group {
	const at = "e2e/compare"
	return []Group{
		{"exec", at, "BenchmarkExec", "both plugins as they are shipped (CGO_ENABLED=0, -s -w), executed with VERSION in turns"},
		{"serve", at, "BenchmarkServe", "ADD and DEL through libcni on one node of each side, ten pods by turns; a block's p99 is of its 100 calls; both pools hold 300 addresses (`MINIMUM_IP_TARGET`) and use them again after a second, so that no ADD waits for EC2; the incumbent's DEL leaves the link to the end of the pod's namespace, ours removes it, hence *end of a pod*; CPU is the plugin processes' rusage and the daemon's with its children's"},
		{"start", at, "BenchmarkStart", "the daemon is stopped and started on a node that holds addresses; the runtime tries an ADD every 10 ms from the start on"},
		{"cold", at, "BenchmarkCold", "110 ADDs at once on a node on which the daemon has just begun to serve, `WARM_ENI_TARGET=1`, m5.4xlarge (29 addresses on each of 8 ENIs), the fake's lags at their defaults; a failed ADD is tried again after a second, then two, four, eight, ten, as a kubelet's"},
		{"calls", at, "BenchmarkCalls", "from the fake's journal, by the credentials of the caller; `WARM_ENI_TARGET=1`, m5.xlarge (14 addresses on each of 4 ENIs), all other settings at their defaults; 70 s after each change of the number of pods, 30 s after the daemon's restart with 30 pods"},
		{"idle", at, "BenchmarkIdle", "30 pods on the node, `WARM_ENI_TARGET=1`, settled; memory from smaps_rollup; CPU of the daemon and its children over the same minute on both nodes"},
		{"forward", at, "BenchmarkForward", "an echo from the pod in the middle of the node's pods to another machine: veth, node, ENI, fabric with source checks, and back; six nodes stand at once, each pod was made by the plugin; the pools hold their addresses before (`MINIMUM_IP_TARGET`)"},
		{"ready", at, "BenchmarkReady", "a pod at a time under a default-deny policy agent that reads the annotation; whatever a node says to the API server passes a TCP proxy that delays; pings every 10 ms from ADD's result on; `ANNOTATE_POD_IP` is on"},
	}
}

const (
	third = 0.333
	half  = 0.5
)

// beside is a row that sets ours beside the incumbent's.
func beside(group, name string, s Series, goal Goal) Row {
	return Row{group, name, By(Ours, s), By(Incumbent, s), goal}
}

func compareRows() []Row {
	return slices.Concat(compareServeRows(), compareDaemonRows(), compareForwardRows(), compareReadyRows())
}

func compareServeRows() []Row {
	all := ParallelTotal("ADD")
	return []Row{
		beside("exec", "Plugin binary", PluginSize, Goal{}),
		beside("exec", "Plugin's exec, VERSION", Version, Goal{}),
		beside("serve", "ADD, p50", ADD, atMost(third)),
		beside("serve", "ADD, p99", P99(ADD), Goal{}),
		beside("serve", "DEL, p50", DEL, Goal{}),
		beside("serve", "DEL, p99", P99(DEL), Goal{}),
		beside("serve", "End of a pod: DEL, until its link is gone", End, Goal{}),
		beside("serve", "110 ADDs at once, total", all, Goal{}),
		beside("serve", "CPU of a plugin in these ADDs", ParallelCPU("ADD"), Goal{}),
		beside("serve", "CPU of the daemon for each of these ADDs", DaemonCPU(all), Goal{}),
	}
}

func compareDaemonRows() []Row {
	return []Row{
		beside("start", "Daemon's start to the first ADD served", Restart, atMost(third)),
		beside("cold", "110 pods at once from a cold pool, until all have an address", ColdAll, atMost(half)),
		beside("cold", "EC2 calls in this burst", Calls(ColdBurst), Goal{}),
		{"cold", "ADDs that failed in this burst: ours", By(Ours, ColdFailed), Series{}, Goal{}},
		{"cold", "ADDs that failed in this burst: incumbent", By(Incumbent, ColdFailed), Series{}, Goal{}},
		beside("calls", "EC2 calls, "+ThereAndBack, Calls(ThereAndBack), atMost(half)),
		beside("calls", "EC2 calls, "+Roll+" with 30 pods", Calls(Roll), atMost(half)),
		beside("idle", "Anonymous memory of the daemon, 30 pods", IdleAnon, atMost(third)),
		beside("idle", "CPU of the daemon at idle over a minute, 30 pods", IdleCPU, atMost(third)),
	}
}

// Trip is a round trip on a node of a side with so many pods.
func Trip(side string, pods int) Series { return By(side, RoundTrip("make compare", pods)) }

// TripPods are the numbers of pods with which round trips are compared.
func TripPods() []int { return []int{1, Parallel, ManyPods} }

func compareForwardRows() (rows []Row) {
	for _, side := range Sides() {
		for _, pods := range TripPods()[1:] {
			goal := Goal{}
			if side == Ours && pods == ManyPods {
				goal = atMost(1.2)
			}
			rows = append(rows, Row{"forward", "Round trip with " + itoa(pods) + " pods on the node, to 1: " + side, Trip(side, pods), Trip(side, 1), goal})
		}
	}
	for _, pods := range TripPods() {
		rows = append(rows, Row{"forward", "Round trip with " + itoa(pods) + " pods on the node", Trip(Ours, pods), Trip(Incumbent, pods), Goal{}})
	}
	return rows
}

func compareReadyRows() (rows []Row) {
	for _, delay := range Delays() {
		away := ", API " + itoa(delay) + " ms away"
		rows = append(rows, beside("ready", "Ping-ready after ADD's exec, annotation on"+away, ReadyAfter(delay), Goal{}))
		rows = append(rows, Row{"ready", "The same: " + OursWaiting + away, By(OursWaiting, ReadyAfter(delay)), Series{}, Goal{}})
		for _, side := range append(Sides(), OursWaiting) {
			rows = append(rows, Row{"ready", "Failed pings of a pod" + away + ": " + side, By(side, ReadyFailed(delay)), Series{}, Goal{}})
		}
	}
	return rows
}

// callsByAction says which calls there were, by action: the medians of each span and side.
func callsByAction(measured map[string]Measured) string {
	var lines []string
	for _, span := range []struct{ group, name string }{{"calls", ThereAndBack}, {"calls", Roll}, {"cold", ColdBurst}} {
		series := measured[span.group].series()
		for _, side := range Sides() {
			prefix := By(side, Series{Name: callsOf(span.name)}).Name
			var counts []string
			for _, name := range slices.Sorted(maps.Keys(series)) {
				if action, ok := strings.CutPrefix(name, prefix); ok {
					counts = append(counts, action+" "+number(estimate(series[name].all()).Center, "calls"))
				}
			}
			if len(counts) == 0 {
				counts = []string{"none"}
			}
			lines = append(lines, fmt.Sprintf("- %s, %s: %s", span.name, side, strings.Join(counts, ", ")))
		}
	}
	return "EC2 calls by action, medians:\n\n" + strings.Join(lines, "\n")
}
