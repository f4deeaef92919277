package awscli

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
)

// exitService is the exit code of the AWS CLI where the service refused. Source: its user guide, "Command line return codes"; there
// 252 is a wrong command line, 253 no credentials, 255 anything else, such as a waiter that gave up.
const exitService = 254

type word = func(ts *testscript.TestScript, neg bool, args []string)

// words are the commands that scripts have beside testscript's own.
func words(done *tally) map[string]word {
	return map[string]word{
		"aws":     func(ts *testscript.TestScript, neg bool, args []string) { aws(ts, neg, args, done) },
		"fakeec2": fakeec2,
		"set":     set,
		"prints":  prints,
		"says":    func(ts *testscript.TestScript, neg bool, args []string) { says(ts, neg, args, done) },
		"exits":   exits,
		"strict":  strict,
		"reaches": reaches,
		"fill":    fill,
		"narrow":  narrow,
	}
}

// aws types a command.
//
//	aws ec2 describe-vpcs --output text
//	! aws ec2 create-vpc --cidr-block 10.0.0.0/8
func aws(ts *testscript.TestScript, neg bool, args []string, done *tally) {
	p := promptOf(ts)
	done.command(args)
	line := p.command(args)
	var err error
	p.exit, err = exitCode(ts.Exec(line[0], line[1:]...))
	ts.Check(err)
	if (p.exit != 0) != neg {
		ts.Fatalf("exit code %d", p.exit)
	}
}

// fakeec2 types a command to the fake itself, which needs no --dir here.
//
//	fakeec2 fault add --name busy --kind throttle --times 2
func fakeec2(ts *testscript.TestScript, neg bool, args []string) {
	p := promptOf(ts)
	if err := ts.Exec(p.fake, append(args, "--dir", p.dir)...); (err != nil) != neg {
		ts.Fatalf("fakeec2: %v", err)
	}
}

// set keeps the words of what was printed in variables, without JSON's quotes and commas; "-" is for a word that nobody needs.
//
//	set ENI ATTACHMENT
func set(ts *testscript.TestScript, neg bool, names []string) {
	printed := strings.Fields(ts.ReadFile("stdout"))
	if neg || len(printed) != len(names) {
		ts.Fatalf("set %v: %d words were printed", names, len(printed))
	}
	for n, name := range names {
		if name != "-" {
			ts.Setenv(name, strings.Trim(printed[n], `",`))
		}
	}
}

// expand puts variables into quoted text, which testscript leaves alone.
func expand(ts *testscript.TestScript, args []string) string {
	return os.Expand(strings.Join(args, " "), ts.Getenv)
}

// prints compares all that was printed with a text; tabs and new lines count as blanks.
//
//	prints 'available $SUBNET'
func prints(ts *testscript.TestScript, neg bool, args []string) {
	want, got := expand(ts, args), strings.Join(strings.Fields(ts.ReadFile("stdout")), " ")
	if (want == got) == neg {
		ts.Fatalf("printed %q, want %q", got, want)
	}
}

// refusal is what the AWS CLI prints when a service refuses.
var refusal = regexp.MustCompile(`^An error occurred \((\S+)\) when calling the (\S+) operation(?: \(reached max retries: (\d+)\))?: (?s:.+)$`)

// says compares what a refused command said with a text; a refusal of the service's also has an exit code of its own.
//
//	says 'An error occurred (InvalidVpcRange) when calling the CreateVpc operation: ...'
func says(ts *testscript.TestScript, neg bool, args []string, done *tally) {
	want, got := expand(ts, args), strings.TrimSpace(ts.ReadFile("stderr"))
	if want != got || neg {
		ts.Fatalf("said otherwise (-want +got):\n%s", cmp.Diff(want, got))
	}
	if found := refusal.FindStringSubmatch(got); found != nil {
		done.code(found[1])
		if exit := promptOf(ts).exit; exit != exitService {
			ts.Fatalf("exit code %d, want %d", exit, exitService)
		}
	}
}

// exits compares the exit code of the last command.
//
//	exits 255
func exits(ts *testscript.TestScript, neg bool, args []string) {
	got := fmt.Sprint(promptOf(ts).exit)
	if neg || len(args) != 1 || args[0] != got {
		ts.Fatalf("exit code %s, want %v", got, args)
	}
}

// strict turns the prompt to an endpoint that verifies signatures: it knows one key, and its clock is ahead by so much.
//
//	strict AKIDALICE secret 20m
func strict(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: strict <key id> <secret> <clock ahead>")
	}
	ahead, err := time.ParseDuration(args[2])
	ts.Check(err)
	stop, err := promptOf(ts).strict(args[0], args[1], ahead)
	ts.Check(err)
	ts.Defer(stop)
}

// reaches pings an address from an instance of the world.
//
//	reaches $NODE 203.0.113.10
func reaches(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: reaches <instance> <address>")
	}
	within := patience
	if neg {
		within = impatience
	}
	got, err := promptOf(ts).reaches(args[0], args[1], within)
	ts.Check(err)
	if got == neg {
		ts.Fatalf("%s reaches %s: %v", args[0], args[1], got)
	}
}

// fill puts variables into a file.
//
//	fill request.json
func fill(ts *testscript.TestScript, neg bool, files []string) {
	if neg {
		ts.Fatalf("fill has no opposite")
	}
	for _, name := range files {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// narrow makes a network in a variable the first one in it of another length.
//
//	narrow BLOCK 64
func narrow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: narrow <variable> <bits>")
	}
	wide, err := netip.ParsePrefix(ts.Getenv(args[0]))
	ts.Check(err)
	bits, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Setenv(args[0], netip.PrefixFrom(wide.Addr(), bits).String())
}
