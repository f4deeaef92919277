package figures

import "fmt"

// The series, as benchmarks record them and rows compare them.
var (
	PluginSize = Series{"size of aws-cni", "MB"}
	EmptySize  = Series{"size of an empty program", "MB"}
	Version    = Series{"VERSION", "ms"}
	MemoryADD  = Series{"ADD, daemon in memory", "ms"}
	MemoryDEL  = Series{"DEL, daemon in memory", "ms"}

	Setup        = Series{"podnet.Setup", "ms"}
	BareSetup    = Series{"bare set-up", "ms"}
	Teardown     = Series{"podnet.Teardown", "ms"}
	BareTeardown = Series{"bare teardown", "ms"}

	ADD = Series{"ADD", "ms"}
	DEL = Series{"DEL", "ms"}

	DaemonSize       = Series{"size of ipamd", "MB"}
	IdleMemory       = Series{"RssAnon, no pods", "MiB"}
	CrowdedMemory    = Series{"RssAnon, 50,000 pods in the API", "MiB"}
	FirstADD         = Series{"start to first ADD", "ms"}
	IdleCPU          = Series{"CPU at idle", "% of a core"}
	BurstADDs        = Series{"all ADDs done", "s"}
	BurstReady       = Series{"all ping-ready", "s"}
	BurstFailedPings = Series{"failed pings", "pings"}
)

// ParallelTotal is the time until 110 processes that were executed at once are done.
func ParallelTotal(what string) Series { return Series{what + ", 110 at once", "ms"} }

// ParallelCPU is the processor time of each of them.
func ParallelCPU(what string) Series { return Series{what + ", 110 at once, CPU of each plugin", "ms"} }

// EmptyBeside is a Go program that does nothing, executed in turns with a series' and in the same way: the same environment and
// standard input.
func EmptyBeside(s Series) Series { return Series{"empty program beside " + s.Name, s.Unit} }

// DaemonCPU is the daemon's processor time for each value of a series.
func DaemonCPU(s Series) Series { return Series{"CPU of the daemon, " + s.Name, "ms"} }

// Crowded is a series on a node with so many pods.
func Crowded(s Series, pods int) Series {
	return Series{fmt.Sprintf("%s, %d pods", s.Name, pods), s.Unit}
}

// RoundTrip is a round trip from a pod on a node with so many pods, which forwards by a scheme.
func RoundTrip(scheme string, pods int) Series {
	return Series{fmt.Sprintf("round trip, %s, %d pods", scheme, pods), "us"}
}

// The schemes of RoundTrip.
const (
	Hostnet      = "hostnet"
	TwoRulesEach = "two rules per pod"
)

// Annotated is ADD with the annotation on and an API server that answers so many milliseconds late.
func Annotated(delay int) Series {
	return Series{fmt.Sprintf("ADD, annotation on, API %d ms away", delay), "ms"}
}

// NotAnnotated is ADD with the annotation off.
var NotAnnotated = Series{"ADD, annotation off", "ms"}
