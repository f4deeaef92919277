package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// view prints one answer of the admin socket as text.
type view struct {
	path  string
	print func(w io.Writer, body io.Reader) error
}

func views() map[string]view {
	return map[string]view{
		"state":   {"/state", printState},
		"journal": {"/journal", printJournal},
		"drops":   {"/drops", printDrops},
	}
}

// show asks a served world and prints the answer.
func show(ctx context.Context, name string, args []string, stdout io.Writer) error {
	v := views()[name]
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the served world (required)")
	if err := parseFlags(flags, args, stdout); err != nil {
		return err
	}
	if *dir == "" {
		return usageError(name + ": the flag --dir is required")
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(*dir, socketName))
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fakeec2"+v.path, nil)
	if err != nil {
		return fmt.Errorf("ask the served world: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the served world: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(response.Body)
		return errors.Join(fmt.Errorf("ask the served world: %s: %s", response.Status, text), err)
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if err := v.print(table, response.Body); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return table.Flush()
}

func printState(w io.Writer, body io.Reader) error {
	var s state
	if err := json.NewDecoder(body).Decode(&s); err != nil {
		return err
	}
	for _, n := range s.Networks {
		fmt.Fprintf(w, "vpc\t%s\t%v\n", n.ID, n.CIDRs)
	}
	for _, sub := range s.Subnets {
		fmt.Fprintf(w, "subnet\t%s\t%s\t%s\t%d free\n", sub.ID, sub.CIDR, sub.AZ, sub.Free)
	}
	for _, x := range s.Services {
		fmt.Fprintf(w, "service\t%s\t%s\n", x.Name, x.Addr)
	}
	for _, x := range s.Outsides {
		fmt.Fprintf(w, "outside\t%s\t%s\n", x.Name, x.Addr)
	}
	for _, i := range s.Instances {
		fmt.Fprintf(w, "instance\t%s\t%s\t%s\t%s\t%s\n", i.Name, i.ID, i.Type, i.State, i.PrivateIP)
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
	return nil
}

func printENI(w io.Writer, e vpc.ENI) {
	where := e.Status
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
	fmt.Fprintf(w, "  eni\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.MAC, where, addresses(e), public)
}

func addresses(e vpc.ENI) string {
	var all []string
	for _, a := range e.Addresses() {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

func printJournal(w io.Writer, body io.Reader) error {
	var entries []ec2api.Entry
	if err := json.NewDecoder(body).Decode(&entries); err != nil {
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

func printDrops(w io.Writer, body io.Reader) error {
	var counters map[string]uint64
	if err := json.NewDecoder(body).Decode(&counters); err != nil {
		return err
	}
	byCount := func(a, b string) int { return cmp.Or(cmp.Compare(counters[b], counters[a]), strings.Compare(a, b)) }
	for _, reason := range slices.SortedFunc(maps.Keys(counters), byCount) {
		fmt.Fprintf(w, "%s\t%d\n", reason, counters[reason])
	}
	return nil
}
