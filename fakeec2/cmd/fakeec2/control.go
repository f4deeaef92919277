package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
)

// groups are the first words of the verbs.
func groups() []string {
	var first []string
	for name := range verbs() {
		group, _, _ := strings.Cut(name, " ")
		first = append(first, group)
	}
	slices.Sort(first)
	return slices.Compact(first)
}

// control carries out a command of two words.
func control(ctx context.Context, group string, args []string, stdout io.Writer) error {
	if len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		printVerbs(stdout, group)
		if len(args) == 0 {
			return usageError(group + ": which command?")
		}
		return nil
	}
	name := group + " " + args[0]
	v, known := verbs()[name]
	if !known {
		return usageError(fmt.Sprintf("unknown command %q", name))
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	var a asker
	a.dirFlag(flags)
	body := func() any { return nil }
	if v.define != nil {
		body = v.define(flags)
	}
	if err := parseFlags(flags, args[1:], v.usage(name), stdout); err != nil {
		return err
	}
	if a.dir == "" {
		return usageError(name + ": the flag --dir is required")
	}
	answer, err := a.ask(ctx, v.path, body())
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if err := v.print(table, answer); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return table.Flush()
}

func printVerbs(w io.Writer, group string) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(verbs())) {
		if strings.HasPrefix(name, group+" ") {
			fmt.Fprintf(table, "fakeec2 %s\t%s\n", name, verbs()[name].help)
		}
	}
	_ = table.Flush() // the terminal's
}

func faultAdd(flags *flag.FlagSet) func() any {
	var f scenario.Fault
	var delay, jitter, age time.Duration
	flags.StringVar(&f.Name, "name", "", "name of the fault")
	flags.StringVar(&f.Action, "action", "", "EC2 action that it hits; default all")
	flags.StringVar(&f.Resource, "resource", "", "value of any parameter that it hits; default all")
	flags.StringVar((*string)(&f.Kind), "kind", string(fault.Error), "what it does: error, throttle, delay, lost, hang or stale")
	flags.StringVar(&f.Code, "code", "", "EC2 error code of kind error")
	flags.StringVar(&f.Message, "message", "", "message of kind error")
	flags.IntVar(&f.Status, "status", 0, "HTTP status of kind error; default 400")
	flags.DurationVar(&delay, "delay", 0, "how long a delay takes")
	flags.DurationVar(&jitter, "jitter", 0, "at most so much is added to the delay, drawn from the seed")
	flags.DurationVar(&age, "age", 0, "of kind stale: reads are answered as of so long ago, at most 2m")
	flags.BoolVar(&f.Off, "off", false, "not in force yet: see fault on")
	flags.IntVar(&f.First, "first", 0, "the first matching request that it hits; default 1")
	flags.IntVar(&f.Times, "times", 0, "how many requests it hits; 0 is all")
	return func() any {
		f.Delay, f.Jitter, f.Age = scenario.Duration(delay), scenario.Duration(jitter), scenario.Duration(age)
		return faultChange{Add: []scenario.Fault{f}}
	}
}

func faultSwitch(on bool) func(*flag.FlagSet) func() any {
	return func(flags *flag.FlagSet) func() any {
		var names []string
		listVar(flags, &names, "name", "fault to switch; may be given more than once")
		return func() any {
			if on {
				return faultChange{On: names}
			}
			return faultChange{Off: names}
		}
	}
}

func faultClear(flags *flag.FlagSet) func() any {
	var names []string
	listVar(flags, &names, "name", "fault to remove; may be given more than once")
	return func() any { return faultChange{Clear: len(names) == 0, Remove: names} }
}

// runFlags are the flags that run and adopt share.
func runFlags(flags *flag.FlagSet, r *runRequest) {
	flags.StringVar(&r.Name, "name", "", "name of the instance")
	flags.StringVar(&r.Type, "type", "", "instance type; default "+defaultType)
	flags.StringVar(&r.Subnet, "subnet", "", "id or range of its subnet")
	addrVar(flags, &r.Public, "public", "public address of the primary one")
	listVar(flags, &r.Groups, "group", "security group, by id or name; may be given more than once; default \"default\"")
	flags.StringVar(&r.Role, "role", "", "IAM role whose credentials the metadata serve")
	flags.IntVar(&r.HopLimit, "hop-limit", 0, "hop limit of metadata tokens, 1 to 64; default 1")
	flags.BoolVar(&r.TokensRequired, "tokens-required", false, "metadata of version 2 only")
}

func instanceRun(flags *flag.FlagSet) func() any {
	var r runRequest
	runFlags(flags, &r)
	addrVar(flags, &r.Address, "address", "primary address; default: drawn")
	return func() any { return r }
}

func instanceAdopt(flags *flag.FlagSet) func() any {
	var r runRequest
	runFlags(flags, &r)
	flags.StringVar(&r.Namespace, "namespace", "", "path of the container's network namespace, such as /proc/<pid>/ns/net")
	flags.StringVar(&r.Link, "link", "eth0", "the container's link; its address and MAC become the primary ENI's")
	return func() any { return r }
}

func instanceTerminate(flags *flag.FlagSet) func() any {
	var r instanceRequest
	flags.StringVar(&r.Instance, "instance", "", "id or name")
	return func() any { return r }
}

func instanceAnnounce(flags *flag.FlagSet) func() any {
	var r announceRequest
	in := 2 * time.Minute
	flags.StringVar(&r.Instance, "instance", "", "id or name")
	flags.StringVar(&r.Interrupt, "interrupt", "", "announce an interruption: terminate, stop or hibernate")
	flags.DurationVar(&in, "in", in, "time until the interruption")
	flags.BoolVar(&r.Rebalance, "rebalance", false, "announce a rebalance recommendation")
	return func() any {
		r.InSeconds = int(in.Seconds())
		return r
	}
}

func instanceMetadata(flags *flag.FlagSet) func() any {
	var r metadataRequest
	flags.StringVar(&r.Instance, "instance", "", "id or name")
	flags.IntVar(&r.HopLimit, "hop-limit", 0, "hop limit of tokens, 1 to 64")
	boolVar(flags, &r.TokensRequired, "tokens-required", "version 2 only; =false for both versions")
	boolVar(flags, &r.Off, "off", "no metadata at all; =false turns them on again")
	boolVar(flags, &r.IPv6, "ipv6", "also at [fd00:ec2::254]; =false turns that off")
	boolVar(flags, &r.Tags, "tags", "serve the instance's tags; =false hides them")
	return func() any { return r }
}

func instanceLimit(flags *flag.FlagSet) func() any {
	var l imds.Limit
	flags.Float64Var(&l.PerSecond, "per-second", 0, "requests a second on average")
	flags.IntVar(&l.Burst, "burst", 0, "requests at once")
	return func() any { return l }
}

// boolVar leaves a setting alone that is not given.
func boolVar(flags *flag.FlagSet, to **bool, name, help string) {
	flags.BoolFunc(name, help, func(text string) error {
		on, err := strconv.ParseBool(text)
		*to = &on
		return err
	})
}

func eniCreate(flags *flag.FlagSet) func() any {
	var r createRequest
	flags.StringVar(&r.Subnet, "subnet", "", "id or range of its subnet")
	flags.StringVar(&r.Description, "description", "", "description")
	flags.StringVar(&r.Type, "type", "", "interface, trunk, branch, efa or efa-only; default interface")
	listVar(flags, &r.Groups, "group", "security group, by id or name; may be given more than once; default \"default\"")
	flags.IntVar(&r.Addresses, "addresses", 0, "secondary addresses")
	flags.IntVar(&r.Prefixes, "prefixes", 0, "IPv4 prefixes")
	return func() any { return r }
}

func eniAttach(flags *flag.FlagSet) func() any {
	var r attachRequest
	flags.StringVar(&r.ENI, "eni", "", "id")
	flags.StringVar(&r.Instance, "instance", "", "id or name")
	flags.IntVar(&r.Device, "device", 1, "device index")
	flags.IntVar(&r.Card, "card", 0, "network card")
	return func() any { return r }
}

func eniDetach(flags *flag.FlagSet) func() any {
	var r eniRequest
	flags.StringVar(&r.ENI, "eni", "", "id")
	flags.BoolVar(&r.Force, "force", false, "also while it is attaching")
	return func() any { return r }
}

func eniDelete(flags *flag.FlagSet) func() any {
	var r eniRequest
	flags.StringVar(&r.ENI, "eni", "", "id")
	return func() any { return r }
}

func eniAssign(flags *flag.FlagSet) func() any {
	var r assignRequest
	flags.StringVar(&r.ENI, "eni", "", "id")
	flags.IntVar(&r.Count, "count", 0, "addresses to draw")
	flags.IntVar(&r.Prefixes, "prefixes", 0, "IPv4 prefixes to draw")
	holdings(flags, &r)
	return func() any { return r }
}

func eniUnassign(flags *flag.FlagSet) func() any {
	var r assignRequest
	flags.StringVar(&r.ENI, "eni", "", "id")
	holdings(flags, &r)
	return func() any { return r }
}

// holdings are given addresses and prefixes.
func holdings(flags *flag.FlagSet, r *assignRequest) {
	flags.Func("address", "IPv4 address; may be given more than once", func(text string) error {
		a, err := netip.ParseAddr(text)
		r.Addresses = append(r.Addresses, a)
		return err
	})
	flags.Func("prefix", "IPv4 prefix; may be given more than once", func(text string) error {
		p, err := netip.ParsePrefix(text)
		r.Blocks = append(r.Blocks, p)
		return err
	})
}

func eniModify(flags *flag.FlagSet) func() any {
	var r modifyRequest
	flags.StringVar(&r.ENI, "eni", "", "id")
	listVar(flags, &r.Groups, "group", "security group, by id or name; may be given more than once")
	boolVar(flags, &r.Check, "check", "source/destination check; =false turns it off")
	return func() any { return r }
}

func listVar(flags *flag.FlagSet, list *[]string, name, help string) {
	flags.Func(name, help, func(text string) error {
		*list = append(*list, text)
		return nil
	})
}

func addrVar(flags *flag.FlagSet, addr *netip.Addr, name, help string) {
	flags.Func(name, help, func(text string) error {
		var err error
		*addr, err = netip.ParseAddr(text)
		return err
	})
}

func printOutcome(w io.Writer, answer []byte) error {
	var done outcome
	if err := json.Unmarshal(answer, &done); err != nil {
		return err
	}
	switch {
	case done.Instance != nil:
		printInstance(w, *done.Instance)
	case done.ENI != nil:
		printENI(w, *done.ENI)
	default:
		fmt.Fprintln(w, "gone")
	}
	return nil
}

func printFaults(w io.Writer, answer []byte) error {
	var states []fault.State
	if err := json.Unmarshal(answer, &states); err != nil {
		return err
	}
	for _, s := range states {
		off := ""
		if s.Off {
			off = "off"
		}
		fmt.Fprintf(w, "fault\t%s\t%s\t%s\t%s\t%s\t%d of %d requests hit\t%s\n",
			s.Name, s.Kind, cmp.Or(s.Action, "every action"), cmp.Or(s.Resource, "every resource"), s.Code, s.Hits, s.Matched, off)
	}
	return nil
}
