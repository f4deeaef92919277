// Package config is the daemon's settings: each one once, with its environment variable, default, unit, meaning and the
// values that it takes.
//
// It is the only place of the project that reads the environment. It never guesses: a value that it does not understand is
// an error that names the setting, the value and what would be accepted, and all such errors are told at once. A setting
// of the Amazon VPC CNI whose feature does not exist here is refused by name, never silently ignored. Start with Settings,
// then table.go (the list) and load.go (how it is read).
package config

import (
	"log/slog"
	"time"
)

// Settings is what the daemon was told, complete and valid. An empty value of a variable counts as "not set".
type Settings struct {
	// The warm pool. WarmENITarget is ignored where WarmIPTarget or MinimumIPTarget is above 0. MaxENI <= 0 means the
	// instance type's limit.
	WarmENITarget, WarmIPTarget, MinimumIPTarget, MaxENI int
	Cooldown                                             time.Duration // from release of an address to its next use

	// Links. PodMTU equals ENIMTU unless set. Bytes.
	ENIMTU, PodMTU int
	VethPrefix     string // of the host's end of each pod's veth pair; at most 4 bytes

	// Routing and translation.
	ExternalSNAT bool // someone else translates what leaves the VPC: the node must not
	NodePort     bool // replies to NodePort connections leave by the ENI that they came in by

	// The pod-IP annotation.
	AnnotatePodIP bool
	AnnotateKeys  []string
	AnnotateAll   []string      // those of the keys whose value is all of a pod's addresses, joined by commas
	AnnotateWait  time.Duration // longest time that an ADD waits for the annotation's answer; 0: not at all

	// This node and its cluster.
	NodeName        string
	ClusterName     string            // "" leaves the cluster's tag off new ENIs
	ENITags         map[string]string // further tags for new ENIs
	EC2Endpoint     string            // URL; "" is the SDK's choice (AWS_ENDPOINT_URL_EC2 and the region)
	ClusterEndpoint string            // URL of the API server; "" is the kubeconfig's or the service account's
	Kubeconfig      string            // file; "" is the pod's service account

	// Files and sockets.
	Socket   string // where the plugin reaches the daemon
	StateDir string // the allocations
	// IncumbentState is the incumbent's file of allocations, read where StateDir has none yet.
	IncumbentState string
	// HealthSocket is where gRPC health checks are answered; ipamd.sock beside Socket unless set.
	HealthSocket string
	ConfDir      string // where the runtime looks for CNI configurations
	BinDir       string // where the runtime looks for plugins
	CacheDir     string // where the runtime keeps plugins' results

	// Logs and what is served.
	LogLevel             slog.Level
	LogFormat            string // "json" or "text"
	PluginLogFile        string // written by the plugin, path on the host
	PluginLogLevel       string // as in the network configuration: DEBUG, INFO, WARN or ERROR
	IntrospectionAddress string // host:port or unix:/path
	DisableIntrospection bool
	MetricsAddress       string // host:port or unix:/path
	DisableMetrics       bool

	// Notes are remarks for the log: settings that were accepted and have no effect, names that look like settings and
	// are none. They are not errors.
	Notes []string

	// Given holds every known setting's text as it applies: what was given, else the default. For introspection.
	Given map[string]string
}

// What the incumbent's documentation and the kernel allow.
const (
	minMTU         = 576              // RFC 791: what every IPv4 host must take in one piece
	maxMTU         = 9001             // EC2's jumbo frames
	maxSocketPath  = 103              // 107 bytes fit into a socket address (unix(7)); the socket is made under a name that is 4 bytes longer
	maxVethPrefix  = 4                // an interface name has 15 bytes, 11 of which are hash
	maxTarget      = 4096             // above any instance type's addresses (64 ENIs x 50 = 3,200); catches a slip of the finger
	maxCooldown    = 86400            // seconds; a day without reuse is surely a mistaken unit
	maxWaitADD     = 10 * time.Second // the plugin waits 20 s for the answer to its "done"
	maxENISettable = 128              // no instance type takes more than 64 ENIs
)
