package pingready

import (
	"math"
	"slices"
)

// Quantiles of a sample. P99 is nil below enoughForP99 values, and all are nil without any.
type Quantiles struct {
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
	P99 *float64 `json:"p99"`
	Max *float64 `json:"max"`
}

// Quantile is the nearest rank's value: one that was measured. The sample must not be empty.
func Quantile(sample []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(sample))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// enoughForP99: a 99th percentile that rests on fewer than three values above it says nothing.
const enoughForP99 = 300

// quantiles takes the nearest rank: every figure is one that was measured.
func quantiles(sample []float64) Quantiles {
	if len(sample) == 0 {
		return Quantiles{}
	}
	sorted := slices.Sorted(slices.Values(sample))
	rank := func(q float64) *float64 {
		value := Quantile(sorted, q)
		return &value
	}
	result := Quantiles{P50: rank(0.5), P90: rank(0.9), Max: rank(1)}
	if len(sorted) >= enoughForP99 {
		result.P99 = rank(0.99)
	}
	return result
}

// values takes one optional figure of each pod, leaving out the pods that do not have it.
func values(pods []Pod, figure func(Pod) *float64) (sample []float64) {
	for _, pod := range pods {
		if value := figure(pod); value != nil {
			sample = append(sample, *value)
		}
	}
	return sample
}

// counts takes one figure of each pod.
func counts(pods []Pod, figure func(Pod) float64) (sample []float64) {
	for _, pod := range pods {
		sample = append(sample, figure(pod))
	}
	return sample
}
