package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
)

func bucketsSwitch(on bool) func(*flag.FlagSet) func() any {
	return func(*flag.FlagSet) func() any {
		return func() any { return bucketChange{On: &on} }
	}
}

func bucketsSet(flags *flag.FlagSet) func() any {
	var b scenario.Bucket
	flags.StringVar(&b.Action, "action", "", "EC2 action whose bucket it is")
	flags.Float64Var(&b.Size, "size", 0, "tokens of a full bucket, which it is at first; 0 (the default) refuses every request")
	flags.Float64Var(&b.Refill, "refill", 0, "tokens a second")
	return func() any { return bucketChange{Set: []scenario.Bucket{b}} }
}

func bucketsReset(flags *flag.FlagSet) func() any {
	var actions []string
	listVar(flags, &actions, "action", "EC2 action; may be given more than once")
	return func() any { return bucketChange{Reset: actions, ResetAll: len(actions) == 0} }
}

func lagSet(flags *flag.FlagSet) func() any {
	set := map[string]scenario.Range{}
	flags.Func("lag", "name=duration, name=shortest..longest or name=never; may be given more than once. Names: "+strings.Join(scenario.LagNames(), ", "), func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		quoted, err := json.Marshal(value)
		if err != nil {
			return err
		}
		var r scenario.Range
		err = r.UnmarshalJSON(quoted)
		set[name] = r
		return err
	})
	return func() any { return lagChange{Set: set} }
}

func lagReset(*flag.FlagSet) func() any {
	return func() any { return lagChange{Reset: true} }
}

func printBuckets(w io.Writer, answer []byte) error {
	var s bucketState
	if err := json.Unmarshal(answer, &s); err != nil {
		return err
	}
	state := "off: nothing is throttled but by a fault"
	if s.On {
		state = "on"
	}
	fmt.Fprintf(w, "throttling\t%s\n", state)
	for _, b := range s.Buckets {
		own := ""
		if slices.Contains(s.Own, b.Action) {
			own = "in place of EC2's"
		}
		fmt.Fprintf(w, "bucket\t%s\t%v tokens\t%v a second\t%s\n", b.Action, b.Size, b.Refill, own)
	}
	return nil
}

func printLags(w io.Writer, answer []byte) error {
	var lags map[string]scenario.Range
	if err := json.Unmarshal(answer, &lags); err != nil {
		return err
	}
	for _, name := range scenario.LagNames() {
		fmt.Fprintf(w, "lag\t%s\t%s\n", name, lags[name])
	}
	return nil
}
