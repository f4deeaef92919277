package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// verb is a command that changes a served world. define adds its flags and gives what makes the request's body of them.
type verb struct {
	path    string
	help    string
	example string // its flags in use, without --dir
	define  func(*flag.FlagSet) func() any
	print   func(w io.Writer, answer []byte) error
}

// verbs are the commands of two words.
func verbs() map[string]verb {
	return map[string]verb{
		"fault add":   {"/faults", "put a fault in force: the table of README.md has the kinds", "--name busy --action AssignPrivateIpAddresses --kind throttle --first 2 --times 3", faultAdd, printFaults},
		"fault list":  {"/faults", "print the faults and how often each hit", "", nil, printFaults},
		"fault off":   {"/faults", "switch a fault off; what hangs goes on", "--name busy", faultSwitch(false), printFaults},
		"fault on":    {"/faults", "switch a fault on again", "--name busy", faultSwitch(true), printFaults},
		"fault clear": {"/faults", "remove all faults, or those of --name", "--name busy --name slow", faultClear, printFaults},

		"buckets list":  {"/buckets", "print whether requests are throttled, and the bucket of each action", "", nil, printBuckets},
		"buckets on":    {"/buckets", "throttle: a request takes a token, and gets 503 RequestLimitExceeded where there is none", "", bucketsSwitch(true), printBuckets},
		"buckets off":   {"/buckets", "throttle no longer; the buckets are full again", "", bucketsSwitch(false), printBuckets},
		"buckets set":   {"/buckets", "give an action a bucket in place of EC2's", "--action AttachNetworkInterface --size 5 --refill 0.5", bucketsSet, printBuckets},
		"buckets reset": {"/buckets", "give actions EC2's buckets again: those of --action, or all", "--action AttachNetworkInterface", bucketsReset, printBuckets},

		"lag list":  {"/lags", "print all lags", "", nil, printLags},
		"lag set":   {"/lags", "change lags of what happens from now on", "--lag attach=1s..5s --lag link=never --lag metadata-assign=30s", lagSet, printLags},
		"lag reset": {"/lags", "make all lags what the scenario had", "", lagReset, printLags},

		"instance run":       {"/instances/run", "start an instance with a namespace", "--name node-c --subnet 10.0.1.0/24 --group nodes --role node --hop-limit 2", instanceRun, printOutcome},
		"instance adopt":     {"/instances/adopt", "make an instance of a container, or of one that was restarted", "--name kind-worker --namespace /proc/4711/ns/net --link eth0", instanceAdopt, printOutcome},
		"instance terminate": {"/instances/terminate", "end an instance; what was adopted is given back", "--instance node-c", instanceTerminate, printOutcome},
		"instance announce":  {"/instances/announce", "announce a spot interruption or rebalance in the metadata, or take it back", "--instance node-c --interrupt terminate --in 2m --rebalance", instanceAnnounce, printOutcome},
		"instance metadata":  {"/instances/metadata", "change how the metadata of an instance answer", "--instance node-c --hop-limit 1 --tokens-required --ipv6", instanceMetadata, printOutcome},
		"instance limit":     {"/metadata/limit", "limit the metadata requests of each instance; without flags, no longer", "--per-second 20 --burst 40", instanceLimit, func(io.Writer, []byte) error { return nil }},

		"eni create":   {"/enis/create", "create an ENI", "--subnet 10.0.1.0/24 --addresses 5 --group nodes", eniCreate, printOutcome},
		"eni attach":   {"/enis/attach", "attach an ENI to an instance", "--eni eni-0123456789abcdef0 --instance node-c --device 1", eniAttach, printOutcome},
		"eni detach":   {"/enis/detach", "detach an ENI", "--eni eni-0123456789abcdef0 --force", eniDetach, printOutcome},
		"eni delete":   {"/enis/delete", "delete an ENI", "--eni eni-0123456789abcdef0", eniDelete, printOutcome},
		"eni assign":   {"/enis/assign", "give an ENI more addresses or prefixes", "--eni eni-0123456789abcdef0 --count 2", eniAssign, printOutcome},
		"eni unassign": {"/enis/unassign", "take addresses, or prefixes, from an ENI", "--eni eni-0123456789abcdef0 --address 10.0.1.99 --address 10.0.1.100", eniUnassign, printOutcome},
		"eni modify":   {"/enis/modify", "replace an ENI's security groups, or turn its source/destination check off or on", "--eni eni-0123456789abcdef0 --check=false", eniModify, printOutcome},
	}
}

// usage is what a command's own help says.
func (v verb) usage(name string) string {
	return usageOf(name, v.help, v.example)
}

// usageOf is the help of one command.
func usageOf(name, help, example string) string {
	return fmt.Sprintf("usage: fakeec2 %s --dir DIR [flags]\n\n  %s\n\nexample:\n  fakeec2 %s\n\n", name, help, strings.TrimSpace(name+" --dir /run/fakeec2 "+example))
}
