package vpc

import (
	"slices"
	"strings"
	"time"
)

// KeptHistory is how far back a stale read can look. It is more than any view of EC2's lags by default, so that a fault that is
// switched on shows what really was.
const KeptHistory = 2 * time.Minute

// version is what an ENI was from a moment on (nil: gone), and when the describes began to tell.
type version struct {
	at, seen time.Time
	eni      *ENI
}

// grave is an ENI that is gone.
type grave struct {
	at time.Time
	id string
}

// departure is an ENI that was detached.
type departure struct {
	at time.Time
	id string
}

// count is what a subnet's free addresses were from a moment on.
type count struct {
	at, seen time.Time
	free     int
}

// remember notes a new version of an ENI.
func (v *VPC) remember(e *ENI) { v.addVersion(e.ID, e) }

func (v *VPC) addVersion(id string, e *ENI) {
	h := v.history[id]
	next := version{at: v.now, seen: after(v.now, v.lag(LagDescribe, id)), eni: e}
	last := len(h) - 1
	if last >= 0 && h[last].seen.After(next.seen) {
		next.seen = h[last].seen // what is newer is not told before what is older
	}
	if last >= 0 && h[last].at.Equal(v.now) && h[last].seen.Equal(next.seen) {
		h[last] = next
		return
	}
	if last < 0 {
		v.order.fresh = append(v.order.fresh, id)
	}
	old := 0
	for old+1 < len(h) && h[old+1].at.Before(v.now.Add(-KeptHistory)) && !h[old+1].seen.After(v.now) {
		old++
	}
	if old > 0 {
		h = slices.Delete(h, 0, old)
	}
	v.history[id] = append(h, next)
}

// bury notes that an ENI is gone, and forgets those that no view shows any more.
func (v *VPC) bury(id string) {
	v.addVersion(id, nil)
	v.graves = append(v.graves, grave{v.now, id})
	old := 0
	for _, g := range v.graves {
		h := v.history[g.id]
		if !g.at.Before(v.now.Add(-KeptHistory)) || h[len(h)-1].seen.After(v.now) {
			break
		}
		delete(v.history, g.id)
		v.order.gone++
		old++
	}
	v.graves = slices.Delete(v.graves, 0, old)
	if v.order.gone > keptGone {
		v.order.sorted(v.history)
	}
}

func (i *instance) depart(id string, now time.Time) {
	i.left = slices.DeleteFunc(i.left, func(d departure) bool { return d.at.Before(now.Add(-KeptHistory)) })
	i.left = append(i.left, departure{now, id})
}

// noteCount notes a subnet's free addresses after a change.
func (v *VPC) noteCount(s *subnet) {
	next := count{at: v.now, seen: after(v.now, v.lag(LagCount, s.ID)), free: s.available()}
	last := len(s.counts) - 1
	if last >= 0 && s.counts[last].seen.After(next.seen) {
		next.seen = s.counts[last].seen
	}
	if last >= 0 && s.counts[last].at.Equal(v.now) && s.counts[last].seen.Equal(next.seen) {
		s.counts[last] = next
		return
	}
	old := 0
	for old+1 < len(s.counts) && s.counts[old+1].at.Before(v.now.Add(-KeptHistory)) && !s.counts[old+1].seen.After(v.now) {
		old++
	}
	s.counts = append(slices.Delete(s.counts, 0, old), next)
}

// Description is the region as EC2's describes show it: behind the truth by the lags Describe and Count, and, for a stale read,
// at least by an age of its own.
type Description struct {
	v   *VPC
	age time.Duration
}

// Described gives the description of now, or of age before. What is older than two minutes is shown as of then.
func (v *VPC) Described(age time.Duration) Description {
	return Description{v, min(max(0, age), KeptHistory)}
}

// tells says whether a version that was made at one time and is seen from another is told.
func (d Description) tells(at, seen time.Time) bool {
	return !seen.After(d.v.now) && (d.age == 0 || !at.After(d.v.now.Add(-d.age)))
}

// eni gives the ENI as it is told, or nil. The model is locked.
func (d Description) eni(id string) *ENI { return d.told(id, d.v.history[id]) }

func (d Description) told(id string, h []version) *ENI {
	for n := len(h) - 1; n >= 0; n-- {
		if d.tells(h[n].at, h[n].seen) {
			if e := h[n].eni; e == nil || !d.v.concealed(id) {
				return e
			}
			return nil
		}
	}
	return nil
}

// ENIs gives the ENIs that match (nil: all) among the named (none: all), ascending by id. The first named one that is not told
// is the error. match must neither change nor keep the ENI, nor call the model.
func (d Description) ENIs(ids []string, match func(*ENI) bool) ([]ENI, error) {
	d.v.mu.Lock()
	defer d.v.mu.Unlock()
	if match == nil {
		match = func(*ENI) bool { return true }
	}
	if len(ids) > 0 {
		found, err := describe(ids, d.find, (*ENI).clone, func(e *ENI) string { return e.ID })
		if err != nil {
			return nil, d.v.allMissing(ids, d, err)
		}
		return slices.DeleteFunc(found, func(e ENI) bool { return !match(&e) }), nil
	}
	found, _ := d.matching(match, "", 0)
	return clones(found), nil
}

// ENIPage gives at most limit (0: all) of the ENIs that match, ascending by id from after on, and whether there are more.
func (d Description) ENIPage(match func(*ENI) bool, after string, limit int) ([]ENI, bool) {
	d.v.mu.Lock()
	defer d.v.mu.Unlock()
	found, more := d.matching(match, after, limit)
	return clones(found), more
}

// matching looks no further than it must: the ids ascend, and one match beyond the limit says that there are more.
func (d Description) matching(match func(*ENI) bool, after string, limit int) (found []*ENI, more bool) {
	ids := d.v.order.sorted(d.v.history)
	from, there := slices.BinarySearch(ids, after)
	if there {
		from++
	}
	for _, id := range ids[from:] {
		e := d.told(id, d.v.history[id])
		if e == nil || !match(e) {
			continue
		}
		if limit > 0 && len(found) == limit {
			return found, true
		}
		found = append(found, e)
	}
	return found, false
}

func clones(list []*ENI) []ENI {
	out := make([]ENI, len(list))
	for n, e := range list {
		out[n] = e.clone()
	}
	return out
}

func (d Description) find(id string) (*ENI, error) {
	if err := kindENI().check(id); err != nil {
		return nil, err
	}
	if e := d.eni(id); e != nil {
		return e, nil
	}
	return nil, kindENI().missing(id)
}

// allMissing names all ids that are not told, where the options say so.
func (v *VPC) allMissing(ids []string, d Description, first error) error {
	if !v.opts.Inferred.AllMissing {
		return first
	}
	var missing []string
	for _, id := range ids {
		if d.eni(id) == nil {
			missing = append(missing, id)
		}
	}
	if len(missing) < 2 {
		return first
	}
	return refuse(CodeENINotFound, "The networkInterface IDs '%s' do not exist", strings.Join(missing, ", "))
}

// InstanceENIs gives the ENIs that are told to be an instance's, by card, then device index.
func (d Description) InstanceENIs(id string) []ENI {
	d.v.mu.Lock()
	defer d.v.mu.Unlock()
	i := d.v.instances[id]
	if i == nil {
		return nil
	}
	ids := slices.Clone(i.enis)
	for _, left := range i.left {
		if !slices.Contains(ids, left.id) {
			ids = append(ids, left.id)
		}
	}
	var out []ENI
	for _, eni := range ids {
		if e := d.eni(eni); e != nil && e.Attachment != nil && e.Attachment.InstanceID == id {
			out = append(out, e.clone())
		}
	}
	slices.SortFunc(out, func(a, b ENI) int { return a.Attachment.compare(b.Attachment) })
	return out
}

func (a *Attachment) compare(b *Attachment) int {
	if a.Card != b.Card {
		return a.Card - b.Card
	}
	return a.Device - b.Device
}

// Subnets gives the named subnets (none: all), ascending, with the free addresses that are told. The first that does not exist
// is the error.
func (d Description) Subnets(ids []string) ([]Subnet, error) {
	d.v.mu.Lock()
	defer d.v.mu.Unlock()
	if len(ids) == 0 {
		ids = sortedKeys(d.v.subnets)
	}
	return describe(ids, d.v.subnet, func(s *subnet) Subnet {
		c := s.snapshot()
		for n := len(s.counts) - 1; n >= 0; n-- {
			if c.Free = s.counts[n].free; d.tells(s.counts[n].at, s.counts[n].seen) {
				break
			}
		}
		return c
	}, func(s *subnet) string { return s.ID })
}

// concealed tells whether an ENI is so new that EC2 does not know it everywhere yet.
func (v *VPC) concealed(id string) bool {
	until, there := v.hidden[id]
	if there && !until.After(v.now) {
		delete(v.hidden, id)
		return false
	}
	return there
}
