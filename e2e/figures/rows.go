package figures

import "slices"

// Group is what one benchmark measures in one run.
type Group struct {
	Name      string // of its samples' file, and what ONLY= takes
	Package   string // where the benchmark is, below the module
	Benchmark string
	What      string // how it is measured, for the text below the table
}

// Groups are all groups, in the order in which they are run and shown.
func Groups() []Group {
	return []Group{
		{"plugin", "cni", "BenchmarkPlugin", "aws-cni (CGO_ENABLED=0, -s -w) and a Go program that does nothing, executed in turns; the daemon of this group is one in the test's memory"},
		{"kernel", "cni/podnet", "BenchmarkKernel", "podnet, and the same netlink requests on open sockets with nothing around them, in turns"},
		{"add", "e2e/bench", "BenchmarkADD", "from the plugin's exec to its result, against the real daemon, in turns with the empty program; CPU is the plugin processes' rusage and the daemon's share of /proc/<pid>/stat over the same span"},
		{"crowd", "e2e/bench", "BenchmarkCrowd", "two nodes stand at once, one with 10 pods and one with 700 that the real plugin made; ADD and DEL in turns"},
		{"roundtrip", "ipamd/hostnet", "BenchmarkRoundTrip", "an echo from a pod on a secondary ENI to a pod on another node: veth, node, ENI, fabric with source checks, the other node, veth, and back; eight nodes stand at once"},
		{"annotation", "e2e/bench", "BenchmarkAnnotation", "four nodes stand at once, each daemon behind a TCP proxy of its own before the API server; an ADD every 10 ms, counted from 240 ms on; with the annotation off the same patches come from another client, and the API server's side runs at idle priority, since elsewhere its work costs the node nothing"},
		{"burst", "e2e/bench", "BenchmarkBurst", "110 pods are created at once on one node that holds the addresses, annotation on, under the policy agent of the demo; from the first ADD's exec on"},
		{"daemon", "e2e/bench", "BenchmarkDaemon", "the real ipamd with the annotation on, and a real kube-apiserver in whose etcd the nodes and pods were put; the daemon reads its own node's pods only; the first ADD is that after a restart on a node that holds addresses"},
		{"fakeec2", "fakeec2/ec2api", "BenchmarkFakeEC2", "the EC2 endpoint without a data plane, over loopback HTTP from one raw client that keeps its connection; one server process holds 10,000 ENIs with 100,000 addresses and one 100 ENIs, asked in turns, each process' own rusage; the virtual hour is in process: 100 nodes, each swaps an address every ten seconds, adds and gives up an ENI every two minutes and describes itself every minute"},
		{"reach", "e2e/bench", "BenchmarkReach", "three nodes stand at once, one 1, one 20, one 200 ms (round trip) from the API server, daemon, kubelet and policy agent alike; on one node after the other 110 pods are created at once, with the annotation off, on, and on with `ANNOTATE_POD_IP_WAIT=1s`, in turns, and pinged every 10 ms from their container's start on, which is the instant ADD returns; p50 and p99 are those of a round's pods, their medians those of the rounds; CPU is the daemon's over a round, DELs included"},
	}
}

// Kind is how a goal is judged.
type Kind int

// The kinds of goals.
const (
	None   Kind = iota // the figure is only shown
	Median             // the median is at most the limit
	Upper              // the interval's upper bound is at most the limit
	Equal              // the interval holds the limit, and is narrow
)

// Goal is what was promised of a row.
type Goal struct {
	Kind  Kind
	Limit float64
}

// Row is one figure: the median of a series, or its ratio to another.
type Row struct {
	Group string
	Name  string
	Of    Series
	// Beside is what Of is compared with; the zero Series: nothing, Of itself is the figure.
	Beside Series
	Goal   Goal
}

// unit of the figure.
func (r Row) unit() string {
	if r.Beside == (Series{}) {
		return r.Of.Unit
	}
	return "x"
}

func atMost(limit float64) Goal { return Goal{Kind: Median, Limit: limit} }

// Sizes that rows and benchmarks agree on.
const (
	Parallel   = 110 // pods at once: a full node by Kubernetes' usual limit
	FewPods    = 10
	ManyPods   = 700 // what the largest instance types hold
	ClusterAPI = "5,000 nodes, 50,000 pods in the API"
)

// Rows are all rows of the table.
func Rows() []Row {
	nothing := Series{}
	var rows []Row
	rows = append(rows,
		Row{"plugin", "Plugin binary", PluginSize, nothing, atMost(4)},
		Row{"plugin", "VERSION, to an empty Go program's exec", Version, EmptyBeside(Version), atMost(1.8)},
		Row{"plugin", "ADD with a daemon in memory, to the empty program", MemoryADD, EmptyBeside(MemoryADD), Goal{}},
		Row{"plugin", "DEL with a daemon in memory, to the empty program", MemoryDEL, EmptyBeside(MemoryDEL), Goal{}},
		Row{"kernel", "Kernel part of ADD, to a bare netlink program's", Setup, BareSetup, atMost(1.5)},
		Row{"kernel", "Kernel part of DEL, to a bare netlink program's", Teardown, BareTeardown, Goal{}},
		Row{"add", "ADD, to the empty program", ADD, EmptyBeside(ADD), atMost(2.5)},
		Row{"add", "DEL, to the empty program", DEL, EmptyBeside(DEL), Goal{}},
	)
	for _, verb := range []string{"ADD", "DEL"} {
		rows = append(rows,
			Row{"add", "110 " + verb + "s at once, total", ParallelTotal(verb), nothing, Goal{}},
			Row{"add", "110 " + verb + "s at once, to 110 empty programs at once", ParallelTotal(verb), ParallelTotal("empty program"), Goal{}},
			Row{"add", "CPU of a plugin in these " + verb + "s", ParallelCPU(verb), nothing, Goal{}},
			Row{"add", "CPU of the daemon for each of these " + verb + "s", DaemonCPU(ParallelTotal(verb)), nothing, Goal{}},
		)
	}
	return slices.Concat(rows, crowdRows(), annotationRows(), daemonRows(), fakeec2Rows(), reachRows())
}

// crowdRows are about what must not grow with the number of pods.
func crowdRows() (rows []Row) {
	rows = append(rows,
		Row{"crowd", "ADD with 700 pods on the node, to 10", Crowded(ADD, ManyPods), Crowded(ADD, FewPods), atMost(1.2)},
		Row{"crowd", "DEL with 700 pods on the node, to 10", Crowded(DEL, ManyPods), Crowded(DEL, FewPods), atMost(1.2)},
	)
	for _, verb := range []Series{ADD, DEL} {
		rows = append(rows, Row{"crowd", "CPU of the daemon for " + verb.Name + ", 700 pods to 10", DaemonCPU(Crowded(verb, ManyPods)), DaemonCPU(Crowded(verb, FewPods)), Goal{}})
	}
	for _, pods := range []int{FewPods, Parallel, ManyPods} {
		goal := Goal{}
		if pods == ManyPods {
			goal = atMost(1.2)
		}
		rows = append(rows, Row{"roundtrip", "Forwarded round trip with " + itoa(pods) + " pods on the node, to 1", RoundTrip(Hostnet, pods), RoundTrip(Hostnet, 1), goal})
	}
	return append(rows,
		Row{"roundtrip", "The same with 700, two rules per pod, to 1", RoundTrip(TwoRulesEach, ManyPods), RoundTrip(TwoRulesEach, 1), Goal{}},
		Row{"roundtrip", "Two rules per pod, to this project, 1 pod", RoundTrip(TwoRulesEach, 1), RoundTrip(Hostnet, 1), Goal{}},
		Row{"roundtrip", "Two rules per pod, to this project, 700 pods", RoundTrip(TwoRulesEach, ManyPods), RoundTrip(Hostnet, ManyPods), Goal{}},
	)
}

// Delays of the API server in the annotation's group, in milliseconds.
func Delays() []int { return []int{1, 20, 200} }

func annotationRows() (rows []Row) {
	const limit = 1.10 // the annotation may cost an ADD no more than a tenth
	for _, delay := range Delays() {
		rows = append(rows, Row{"annotation", "ADD, annotation on, API " + itoa(delay) + " ms away, to off", Annotated(delay), NotAnnotated, Goal{Kind: Upper, Limit: limit}})
	}
	near, far := Annotated(Delays()[0]), Annotated(Delays()[2])
	return append(rows,
		Row{"annotation", "ADD, annotation on, API 200 ms away, to 1 ms", far, near, Goal{Kind: Equal, Limit: 1}},
		Row{"annotation", "CPU of the daemon for ADD, annotation on, to off", DaemonCPU(near), DaemonCPU(NotAnnotated), Goal{}},
	)
}

func daemonRows() []Row {
	nothing := Series{}
	const memory = 30 // MiB
	return []Row{
		{"burst", "110 pods at once: all ADDs done", BurstADDs, nothing, Goal{}},
		{"burst", "110 pods at once: all ping-ready", BurstReady, nothing, Goal{}},
		{"burst", "110 pods at once: failed pings, in and out", BurstFailedPings, nothing, Goal{}},
		{"daemon", "Daemon binary", DaemonSize, nothing, Goal{}},
		{"daemon", "Anonymous memory, no pods", IdleMemory, nothing, atMost(memory)},
		{"daemon", "Anonymous memory, 110 pods here, " + ClusterAPI, CrowdedMemory, nothing, atMost(memory)},
		{"daemon", "Daemon's start to the first ADD's result", FirstADD, nothing, Goal{}},
		{"daemon", "CPU at idle over a minute", IdleCPU, nothing, Goal{}},
	}
}
