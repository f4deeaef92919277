package figures

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence of every interval.
const confidence = 0.95

// Estimate is a median with its interval.
type Estimate struct {
	Center, Lo, Hi float64
	N              int // values that it rests on
}

// Sure tells whether there are enough values for an interval: the extremes of six enclose the median in 97 of 100 samples.
func (e Estimate) Sure() bool { return !math.IsInf(e.Lo, 0) && !math.IsInf(e.Hi, 0) && e.N > 1 }

// estimate gives the median of values, about whose distribution it assumes nothing.
func estimate(values []float64) Estimate {
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds) // it sorts what it is given
	s := benchmath.AssumeNothing.Summary(sample, confidence)
	return Estimate{Center: s.Center, Lo: s.Lo, Hi: s.Hi, N: len(values)}
}

// blocks are a series' values by block.
type blocks map[int][]float64

func (b blocks) all() (values []float64) {
	for _, block := range slices.Sorted(maps.Keys(b)) {
		values = append(values, b[block]...)
	}
	return values
}

// ratio compares two series block by block. Blocks that only one of them has are an error: they were not measured in turns.
func ratio(of, beside blocks) (Estimate, error) {
	var ratios []float64
	for _, block := range slices.Sorted(maps.Keys(of)) {
		if len(beside[block]) == 0 || len(of) != len(beside) {
			return Estimate{}, fmt.Errorf("compare blocks: %d and %d of them, block %d is in one only", len(of), len(beside), block)
		}
		ratios = append(ratios, estimate(of[block]).Center/estimate(beside[block]).Center)
	}
	if len(ratios) == 0 {
		return Estimate{}, errNone
	}
	return estimate(ratios), nil
}

// series sorts samples by series.
func (m Measured) series() map[string]blocks {
	all := map[string]blocks{}
	for _, s := range m.Samples {
		if all[s.Series] == nil {
			all[s.Series] = blocks{}
		}
		all[s.Series][s.Block] = append(all[s.Series][s.Block], s.Value)
	}
	return all
}
