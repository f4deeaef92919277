package reconcile_test

import (
	"slices"
	"testing"
	"time"
)

// shrinkTime bounds the search for a short list of operations: a person waits for it.
const shrinkTime = 30 * time.Second

// shrink looks for a short list of operations that breaks the same law: it takes away halves, quarters and so on of what is
// left (Zeller's ddmin), for as long as that does not help any more or the time is over.
func shrink(t *testing.T, failed outcome) outcome {
	first := failed.faults[0]
	limit := time.Duration(0)
	if first.at < hour {
		limit = first.at + 5*time.Minute // a shorter list may break the law a little later
	}
	best, began := failed, time.Now()
	breaks := func(ops []op) bool {
		if time.Since(began) > shrinkTime {
			return false
		}
		out := simulate(t, task{seed: failed.seed, ops: ops, limit: limit})
		again := slices.ContainsFunc(out.faults, func(b breach) bool { return b.law == first.law })
		if again {
			best = out
		}
		return again
	}
	ddmin(slices.DeleteFunc(slices.Clone(failed.ops), func(o op) bool { return o.At > first.at }), breaks)
	return best
}

// ddmin gives a list from which no part of any size can be taken away without losing the property. The whole list must have it.
func ddmin[T any](list []T, has func([]T) bool) []T {
	for parts := 2; len(list) > 0; {
		parts = min(parts, len(list))
		size := (len(list) + parts - 1) / parts
		shorter := false
		for from := 0; from < len(list); {
			less := slices.Concat(list[:from], list[min(from+size, len(list)):])
			if has(less) {
				list, shorter = less, true
			} else {
				from += size
			}
		}
		switch {
		case size == 1 && !shorter:
			return list
		case !shorter:
			parts *= 2
		}
	}
	return list
}

func TestShortening(t *testing.T) {
	var list []int
	for k := range 200 {
		list = append(list, k)
	}
	for _, want := range [][]int{{17}, {0, 199}, {3, 4, 5}, {20, 90, 91, 160}, {}} {
		tries := 0
		got := ddmin(list, func(some []int) bool {
			tries++
			for _, x := range want {
				if !slices.Contains(some, x) {
					return false
				}
			}
			return true
		})
		if !slices.Equal(got, want) || tries > 200 {
			t.Errorf("%v, %d tries: want %v", got, tries, want)
		}
	}
}
