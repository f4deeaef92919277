// Package figures is what `make bench` promises and finds: the rows of its table, the samples that benchmarks record, and the
// statistics between the two.
//
// It owns the samples' files (build/bench/<group>.jsonl), the rows with their goals, and the README's table of them. It
// measures nothing itself and runs no program. Everything comparable is a ratio of series that one run measured in turns,
// block by block: a block's ratio is that of the two medians in it, and a row's figure is the median of the blocks' ratios
// with its interval. Start with Record in recorder.go (what a benchmark calls) and rows.go (what is promised); table.go is
// what comes out.
package figures
