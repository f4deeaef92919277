package reconcile_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// op is one operation of a simulated hour: a plain value, drawn from the seed before anything runs. Its own number decides
// all that is drawn when it is carried out, so that taking one operation away leaves the others' draws as they are.
type op struct {
	ID   int // its place in the seed's list, from 1
	At   time.Duration
	Kind string
	N    uint64
}

func (o op) String() string { return fmt.Sprintf("%d %s %s", o.ID, o.At, o.Kind) }

func (o op) rng() *rand.Rand { return rand.New(rand.NewPCG(o.N, 7)) }

// hour is what every seed simulates; what must come to rest afterwards has its own time.
const hour = time.Hour

// kind is a kind of operation. Faults are left out of some seeds altogether (see plan): what hides behind a fault that is
// always there would never be seen.
type kind struct {
	name   string
	weight int
	fault  bool
	do     func(n *node, o op, rng *rand.Rand)
}

// kinds are all operations. New ones go to the end: the list is part of what a seed means.
func kinds() []kind {
	return []kind{
		{"add", 300, false, (*node).opAdd},
		{"burst", 30, false, (*node).opBurst},
		{"delete", 250, false, (*node).opDelete},
		{"complete", 40, false, (*node).opComplete},
		{"replace", 60, false, (*node).opReplace},
		{"again", 50, false, (*node).opAgain},
		{"overlap", 40, false, (*node).opOverlap},
		{"late del", 40, false, (*node).opLateDel},
		{"gc", 30, false, (*node).opGC},
		{"vanish", 40, true, (*node).opVanish},
		{"crash", 30, true, (*node).opCrash},
		{"crash at", 90, true, (*node).opCrashAt},
		{"reboot", 6, true, (*node).opReboot},
		{"settings", 15, true, (*node).opSettings},
		{"state lost", 8, true, (*node).opStateLost},
		{"throttle", 30, true, (*node).opThrottle},
		{"refuse once", 50, true, (*node).opRefuseOnce},
		{"refuse", 30, true, (*node).opRefuse},
		{"answer lost", 40, true, (*node).opAnswerLost},
		{"request lost", 25, true, (*node).opRequestLost},
		{"hang", 40, true, (*node).opHang},
		{"slow calls", 15, true, (*node).opSlowCalls},
		{"lag", 40, true, (*node).opLag},
		{"slow links", 30, true, (*node).opSlowLinks},
		{"api down", 25, true, (*node).opAPIDown},
		{"api refuses", 15, true, (*node).opAPIRefuses},
		{"patch lost", 20, true, (*node).opPatchLost},
		{"disk full", 40, true, (*node).opDiskFull},
		{"disk hangs", 8, true, (*node).opDiskHangs},
		{"steal", 20, true, (*node).opSteal},
		{"rob", 15, true, (*node).opRob},
		{"detach", 6, true, (*node).opDetach},
		{"delete eni", 4, true, (*node).opDeleteENI},
		{"stranger", 8, true, (*node).opStranger},
		{"crowd", 12, true, (*node).opCrowd},
		{"flush", 20, true, (*node).opFlush},
		{"deaf", 8, true, (*node).opDeaf},
		{"apply fails", 25, true, (*node).opApplyFails},
		{"apply hangs", 8, true, (*node).opApplyHangs},
		{"peace", 0, false, (*node).opPeace},
		{"impatience", 60, true, (*node).opImpatience},
	}
}

// plan draws a seed's operations: an hour of storms, of steady days and of calm, with one peace in its middle in which
// everything must come right again. Times are unique.
func plan(seed uint64) []op {
	rng := rand.New(rand.NewPCG(seed, 99))
	list := kinds()
	var weights []int
	for _, k := range list {
		w := k.weight
		if k.fault && rng.IntN(2) == 0 {
			w = 0
		}
		weights = append(weights, w)
	}
	draw := func() string {
		total := 0
		for _, w := range weights {
			total += w
		}
		x := rng.IntN(total)
		for i, w := range weights {
			if x < w {
				return list[i].name
			}
			x -= w
		}
		return ""
	}
	var ops []op
	peace := 25*time.Minute + time.Duration(rng.Int64N(int64(10*time.Minute)))
	at, until, pace := 5*time.Second, time.Duration(0), time.Duration(0)
	for {
		if at >= until {
			switch rng.IntN(4) {
			case 0: // a storm
				until, pace = at+time.Duration(1+rng.IntN(3))*time.Minute, 3*time.Second
			case 1: // calm
				until, pace = at+time.Duration(1+rng.IntN(6))*time.Minute, 2*time.Minute
			default:
				until, pace = at+time.Duration(2+rng.IntN(4))*time.Minute, 15*time.Second
			}
		}
		if at >= peace && peace > 0 {
			ops = append(ops, op{At: peace, Kind: "peace", N: rng.Uint64()})
			at, peace = peace+peaceLasts+time.Second, 0
			continue
		}
		at += 1 + time.Duration(float64(pace)*min(4, -math.Log(1-rng.Float64())))
		if at >= hour {
			break
		}
		if at < peace || peace == 0 {
			ops = append(ops, op{At: at, Kind: draw(), N: rng.Uint64()})
		}
	}
	slices.SortFunc(ops, func(a, b op) int { return cmp.Compare(a.At, b.At) })
	for i := range ops {
		ops[i].ID = i + 1
		if i > 0 && ops[i].At <= ops[i-1].At {
			ops[i].At = ops[i-1].At + 1
		}
	}
	return ops
}

// chosen parses a list of operation numbers ("3,17,21"); the others are left out. "" chooses all.
func chosen(ops []op, list string) ([]op, error) {
	if list == "" {
		return ops, nil
	}
	var out []op
	for text := range strings.SplitSeq(list, ",") {
		id, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || id < 1 || id > len(ops) {
			return nil, fmt.Errorf("operation %q: want numbers from 1 to %d", text, len(ops))
		}
		out = append(out, ops[id-1])
	}
	slices.SortFunc(out, func(a, b op) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(out), nil
}

func numbers(ops []op) string {
	var out []string
	for _, o := range ops {
		out = append(out, strconv.Itoa(o.ID))
	}
	return strings.Join(out, ",")
}
