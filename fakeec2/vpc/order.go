package vpc

import "slices"

// order are the keys of the history, ascending. It is put in order when it is read: a region where ENIs come and go is not
// sorted for each of them. The zero value is that of an empty history.
type order struct {
	ids   []string // ascending; some may be gone
	fresh []string // new since, as they came
	gone  int      // how many of both are gone
}

// keptGone bounds what an order that nobody reads keeps of ENIs that are gone.
const keptGone = 4096

func (o *order) sorted(history map[string][]version) []string {
	if len(o.fresh) == 0 && o.gone == 0 {
		return o.ids
	}
	slices.Sort(o.fresh)
	merged := make([]string, 0, len(o.ids)+len(o.fresh))
	left, right := o.ids, o.fresh
	for len(left)+len(right) > 0 {
		from := &left
		if len(left) == 0 || len(right) > 0 && right[0] < left[0] {
			from = &right
		}
		id := (*from)[0]
		*from = (*from)[1:]
		if _, there := history[id]; there && (len(merged) == 0 || merged[len(merged)-1] != id) {
			merged = append(merged, id)
		}
	}
	o.ids, o.fresh, o.gone = merged, nil, 0
	return merged
}
