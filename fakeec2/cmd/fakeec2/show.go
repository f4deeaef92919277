package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// view prints one answer of the admin socket as text.
type view struct {
	path    string
	help    string
	example string
	print   func(w io.Writer, answer []byte) error
}

func views() map[string]view {
	return map[string]view{
		"state":   {"/state", "print instances, ENIs with their addresses, subnets, services, and the packets dropped by reason", "--json", printState},
		"journal": {"/journal", "print the EC2 requests: number, time, caller, action, answer, parameters, and the fault that hit", "--since 120 --json", printJournal},
		"drops":   {"/drops", "print the packets dropped so far, by reason", "", printDrops},
	}
}

// show asks a served world and prints the answer.
func show(ctx context.Context, name string, args []string, stdout io.Writer) error {
	v := views()[name]
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	var a asker
	a.dirFlag(flags)
	raw := flags.Bool("json", false, "print the answer as JSON")
	since := flags.Uint64("since", 0, "of the journal: the requests after this number")
	if err := parseFlags(flags, args, usageOf(name, v.help, v.example), stdout); err != nil {
		return err
	}
	if a.dir == "" {
		return usageError(name + ": the flag --dir is required")
	}
	if *since > 0 {
		v.path += "?since=" + strconv.FormatUint(*since, 10)
	}
	answer, err := a.ask(ctx, v.path, nil)
	if err != nil {
		return err
	}
	if *raw {
		_, err := stdout.Write(answer)
		return err
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if err := v.print(table, answer); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return table.Flush()
}

func printState(w io.Writer, answer []byte) error {
	var s state
	if err := json.Unmarshal(answer, &s); err != nil {
		return err
	}
	for _, n := range s.Networks {
		fmt.Fprintf(w, "vpc\t%s\t%v\n", n.ID, n.CIDRs)
	}
	for _, sub := range s.Subnets {
		fmt.Fprintf(w, "subnet\t%s\t%s\t%s\t%d free\n", sub.ID, sub.CIDR, sub.AZ, sub.Free)
	}
	for _, x := range s.Peerings {
		fmt.Fprintf(w, "peering\t%s\t%s\t%s\n", x.ID, x.A, x.B)
	}
	for _, x := range s.Services {
		fmt.Fprintf(w, "service\t%s\t%s\n", x.Name, x.Addr)
	}
	for _, x := range s.Outsides {
		fmt.Fprintf(w, "outside\t%s\t%s\n", x.Name, x.Addr)
	}
	for _, i := range s.Instances {
		printInstance(w, i)
		for _, e := range s.ENIs {
			if e.Attachment != nil && e.Attachment.InstanceID == i.ID {
				printENI(w, e)
			}
		}
	}
	for _, e := range s.ENIs {
		if e.Attachment == nil {
			printENI(w, e)
		}
	}
	for _, reason := range byCount(s.Drops) {
		if s.Drops[reason] > 0 {
			fmt.Fprintf(w, "drops\t%s\t%d\n", reason, s.Drops[reason])
		}
	}
	return nil
}

func printInstance(w io.Writer, i vpc.Instance) {
	adopted := ""
	if i.Guest.Link != "" {
		adopted = "adopted " + i.Guest.Link + " of " + i.Namespace
	}
	fmt.Fprintf(w, "instance\t%s\t%s\t%s\t%s\t%s\t%s\n", i.Name, i.ID, i.Type, i.State, i.PrivateIP, adopted)
}

func printENI(w io.Writer, e vpc.ENI) {
	where := e.Status
	if e.TrunkID != "" {
		where = fmt.Sprintf("VLAN %d of %s", e.VLAN, e.TrunkID)
	}
	if a := e.Attachment; a != nil {
		link := "no link"
		if a.Link {
			link = "link"
		}
		where = fmt.Sprintf("device %d, %s, %s", a.Device, a.Status, link)
	}
	public := ""
	if e.Public.IsValid() {
		public = "public " + e.Public.String()
	}
	check := ""
	if !e.SourceDestCheck {
		check = "no source check"
	}
	fmt.Fprintf(w, "  eni\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.MAC, where, strings.Join(e.Groups, " "), addresses(e), public, check)
}

func addresses(e vpc.ENI) string {
	var all []string
	for _, a := range e.Addresses() {
		all = append(all, a.String())
	}
	for _, p := range e.Prefixes {
		all = append(all, p.String())
	}
	for _, a := range e.IPv6 {
		all = append(all, a.String())
	}
	for _, p := range e.IPv6Prefixes {
		all = append(all, p.String())
	}
	return strings.Join(all, " ")
}

func printJournal(w io.Writer, answer []byte) error {
	var entries []ec2api.Entry
	if err := json.Unmarshal(answer, &entries); err != nil {
		return err
	}
	for _, e := range entries {
		var params []string
		for _, key := range slices.Sorted(maps.Keys(e.Params)) {
			params = append(params, key+"="+e.Params[key])
		}
		note := ""
		if e.Fault != "" {
			note = "fault " + e.Fault
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d %s\t%s\t%s\t%s\n", e.Seq, e.Time.Format(time.TimeOnly+".000"), e.AccessKey, e.Action,
			e.Status, e.Code, e.Took.Round(time.Millisecond), strings.Join(params, " "), note)
	}
	return nil
}

func printDrops(w io.Writer, answer []byte) error {
	var counters map[string]uint64
	if err := json.Unmarshal(answer, &counters); err != nil {
		return err
	}
	for _, reason := range byCount(counters) {
		fmt.Fprintf(w, "%s\t%d\n", reason, counters[reason])
	}
	return nil
}

// byCount gives the reasons, the most frequent first.
func byCount(counters map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counters), func(a, b string) int {
		return cmp.Or(cmp.Compare(counters[b], counters[a]), strings.Compare(a, b))
	})
}
