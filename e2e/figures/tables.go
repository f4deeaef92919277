package figures

import "slices"

// Table is one of the README's tables of figures: what one target of the Makefile measures.
type Table struct {
	Target string // of the Makefile
	Marker string // in the README, around the table
	Groups []Group
	Rows   []Row
	// Notes is what stands below the table, made of what was measured; nil: nothing.
	Notes func(measured map[string]Measured) string
}

// Bench is what this project promises of itself.
func Bench() Table {
	return Table{Target: "bench", Marker: "figures", Groups: Groups(), Rows: Rows(), Notes: func(measured map[string]Measured) string {
		return matrixMarkdown(Matrix(measured))
	}}
}

// Tables are all.
func Tables() []Table { return []Table{Bench(), Compare()} }

// tableOf gives the table of a group, whose name is in one only; that of an unknown group is empty.
func tableOf(group string) Table {
	for _, t := range Tables() {
		if slices.ContainsFunc(t.Groups, func(g Group) bool { return g.Name == group }) {
			return t
		}
	}
	return Table{}
}
