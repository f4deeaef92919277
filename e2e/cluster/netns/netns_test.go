package netns

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/event"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// shell launches a shell script as a process of a cluster.
func shell(t *testing.T, script string, events func(event.Event)) *process {
	t.Helper()
	ns, err := netlab.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	p, err := launch(t.TempDir(), program{
		name: "script", in: ns, path: "/bin/sh", args: []string{"-c", script}, env: plainEnv(), events: events,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// deadline is how long anything here may take; it is met in milliseconds.
const deadline = 10 * time.Second

func TestAProcessThatEndsByItselfIsToldWithItsLastLines(t *testing.T) {
	p := shell(t, "for i in $(seq 100); do echo line $i >&2; done; exit 3", nil)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	err := await(ctx, make(chan struct{}), "nothing", p)
	died, ok := errors.AsType[*DiedError](err)
	if !ok {
		t.Fatalf("error = %v, want a DiedError", err)
	}
	for _, want := range []string{"script", "exit status 3", "line 100\n", died.Log} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 50\n") {
		t.Errorf("error has the whole log:\n%v", err)
	}
}

func TestWhatNeverHappensIsToldWithTheLogOfWhomItWaitedFor(t *testing.T) {
	p := shell(t, "echo thinking >&2; exec sleep 60", nil)
	ctx, cancel := context.WithCancel(context.Background())
	for end := time.Now().Add(deadline); !strings.Contains(tail(p.log), "thinking") && time.Now().Before(end); {
		<-time.After(time.Millisecond) // until the process has said it
	}
	cancel()
	err := await(ctx, make(chan struct{}), "the answer", p)
	for _, want := range []string{"the answer", "script", "thinking", p.log} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	if err := p.stop(context.Background()); err != nil {
		t.Error(err)
	}
	if !p.asked() {
		t.Error("a process that was stopped counts as ended by itself")
	}
}

func TestEventsComeThroughAndReadyIsNoticed(t *testing.T) {
	var got []event.Kind
	p := shell(t, `echo '{"kind":"ready"}'; echo '{"kind":"add_done","pod":"p"}'`, func(e event.Event) { got = append(got, e.Kind) })
	<-p.ended
	select {
	case <-p.ready:
	default:
		t.Error("ready was not noticed")
	}
	if len(got) != 2 || got[1] != event.AddDone {
		t.Errorf("events = %v", got)
	}
}

func TestAStepIsShownOnceItIsSlow(t *testing.T) {
	tests := []struct {
		takes time.Duration
		want  []string
	}{
		{time.Second, []string{"ok   boil    1.0 s"}},
		{3 * time.Second, []string{"...  boil    2.0 s so far", "ok   boil    3.0 s"}},
		{20 * time.Second, []string{"...  boil    2.0 s so far", "...  boil   17.0 s so far", "ok   boil   20.0 s"}},
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			p := &progress{out: &out}
			err := p.step(context.Background(), "boil", func(context.Context) error {
				<-time.After(test.takes)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for _, line := range test.want {
				want.WriteString("  " + strings.Replace(line, "boil ", "boil"+strings.Repeat(" ", 39), 1) + "\n")
			}
			if got := out.String(); got != want.String() {
				t.Errorf("shown:\n%swant:\n%s", got, want.String())
			}
		})
	}
}

func TestAFailedStepIsShownAndNamed(t *testing.T) {
	var out bytes.Buffer
	cause := errors.New("no water")
	err := (&progress{out: &out}).step(context.Background(), "boil", func(context.Context) error { return cause })
	if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "boil: ") || !strings.Contains(out.String(), "FAIL boil") {
		t.Errorf("error = %v, shown %q", err, out.String())
	}
}

func TestCapacityIsTheInstanceTypes(t *testing.T) {
	// m5.xlarge: 4 ENIs of 15 addresses, one of which is the ENI's own.
	info := Options{}.Info()
	if got := info.Capacity(); got != 2*4*14 {
		t.Errorf("capacity of the demo's cluster = %d, want 112", got)
	}
}

func TestTheWorldIsOneThatFakeEC2Takes(t *testing.T) {
	machines := []Machine{{"m-a", "t3.small"}, {"m-b", "m5.24xlarge"}, {"m-c", "c5.large"}, {"m-d", "t3.small"}, {"m-e", "t3.small"}, {"m-f", "t3.small"}, {"m-g", "t3.small"}}
	for _, options := range []Options{{}, {Nodes: 3, InstanceType: "m5.24xlarge", Seed: 5}, {Machines: machines}, {Nodes: 2, Machines: machines, Lags: map[string]string{"metadata-leaves": "2s"}}} {
		path := t.TempDir() + "/scenario.yaml"
		if err := options.WithDefaults().writeWorld(path); err != nil {
			t.Fatal(err)
		}
		world := build(t, path)
		if got, want := len(world.Model.Instances()), options.WithDefaults().Nodes+len(options.Machines); got != want {
			t.Errorf("%d instances, want %d", got, want)
		}
	}
}

func build(t *testing.T, path string) scenario.World {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	world, err := parsed.Build(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return world
}
