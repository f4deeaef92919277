package vpc

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// metaENI is what an instance's metadata know of one attached ENI, with the times from which and until which they know it. Each
// fact has its own lag. A time that lies ahead is drawn anew when the lags change.
type metaENI struct {
	id     string
	last   *ENI                  // as it was when it was last attached here
	places []known[Attachment]   // newest last; the metadata show only the newest attachment that is told
	items  []known[netip.Prefix] // addresses and prefixes, primary ones included
	groups []known[[]string]     // newest last
}

// known is a fact of the metadata.
type known[T any] struct {
	fact           T
	at, from       time.Time // when it came to be, when it is shown
	gone, until    time.Time // when it ceased to be, and to be shown; zero while it lasts
	resource       string    // of its lags
	leaves, device time.Time // of a place: when the leaves are there, when the device number is right
	bare           time.Time // of a place: when the leaves are gone again
	instant        bool      // known from the beginning: nothing lags (the primary ENI at launch)
}

func (k *known[T]) shown(now time.Time) bool {
	return !k.from.After(now) && (k.until.IsZero() || k.until.After(now))
}

// MetadataENI is an ENI as an instance's metadata show it.
type MetadataENI struct {
	ENI                // addresses, prefixes and groups are those that are shown; the rest is what is true
	Bare          bool // the MAC is listed, but there are no leaves (404)
	DeviceUnknown bool // device-number reads 0, whatever the attachment says
}

// showAttached begins to show an ENI; without lag, the metadata know it at once.
func (v *VPC) showAttached(i *instance, e *ENI, lag bool) {
	if i.meta == nil {
		i.meta = map[string]*metaENI{}
	}
	i.forgetGone(v.now)
	m := &metaENI{id: e.ID}
	if old := i.meta[e.ID]; old != nil { // it comes back before the metadata forgot it
		m = old
		m.places = m.places[len(m.places)-1:]
		m.items, m.groups = nil, nil
	}
	place := known[Attachment]{fact: *e.Attachment, at: v.now, resource: e.ID, instant: !lag}
	v.drawPlace(&place)
	m.places = append(m.places, place)
	for _, p := range e.holding().all() {
		m.items = append(m.items, known[netip.Prefix]{fact: p, at: v.now, from: place.from, resource: e.ID, instant: true})
	}
	if lag { // secondaries come on their own, the primary address with the MAC
		primary := netip.Prefix{}
		if e.Primary.IsValid() {
			primary = single(e.Primary)
		}
		for n := range m.items {
			if k := &m.items[n]; k.fact != primary {
				k.instant, k.resource = false, e.ID+"/"+shortPrefix(k.fact)
				k.from = after(v.now, v.lag(LagMetadataAssign, k.resource))
			}
		}
	}
	m.groups = append(m.groups, known[[]string]{fact: e.Groups, at: v.now, from: v.now, resource: e.ID, instant: true})
	m.last = e
	i.meta[e.ID] = m
}

// drawPlace draws when an attachment is listed, has leaves, and the right device number.
func (v *VPC) drawPlace(k *known[Attachment]) {
	k.from, k.leaves, k.device = k.at, k.at, k.at
	if !k.instant {
		k.from = after(k.at, v.lag(LagMetadataMAC, k.resource))
		k.leaves = after(k.from, v.lag(LagMetadataLeaves, k.resource))
		k.device = after(k.from, v.lag(LagMetadataDevice, k.resource))
	}
}

func (v *VPC) drawGone(k *known[Attachment]) {
	k.bare = after(k.gone, v.lag(LagMetadataGone, k.resource))
	k.until = after(k.bare, v.lag(LagMetadataBare, k.resource))
}

// metaOf is where an attached ENI's facts are noted, or nil.
func (v *VPC) metaOf(e *ENI) *metaENI {
	if e.Attachment == nil {
		return nil
	}
	return v.instances[e.Attachment.InstanceID].meta[e.ID]
}

func (v *VPC) showAssigned(e *ENI, list []netip.Prefix) {
	m := v.metaOf(e)
	if m == nil {
		return
	}
	m.items = slices.DeleteFunc(m.items, func(k known[netip.Prefix]) bool { return !k.until.IsZero() && !k.until.After(v.now) })
	for _, p := range list {
		k := known[netip.Prefix]{fact: p, at: v.now, resource: e.ID + "/" + shortPrefix(p)}
		k.from = after(v.now, v.lag(LagMetadataAssign, k.resource))
		m.items = append(m.items, k)
	}
}

func (v *VPC) showUnassigned(e *ENI, list []netip.Prefix) {
	m := v.metaOf(e)
	if m == nil {
		return
	}
	for n := range m.items {
		k := &m.items[n]
		if k.gone.IsZero() && slices.Contains(list, k.fact) {
			k.gone = v.now
			k.until = after(v.now, v.lag(LagMetadataUnassign, e.ID+"/"+shortPrefix(k.fact)))
		}
	}
}

func (v *VPC) showGroups(e *ENI) {
	if m := v.metaOf(e); m != nil {
		for len(m.groups) > 1 && m.groups[1].shown(v.now) {
			m.groups = m.groups[1:]
		}
		m.groups = append(m.groups, known[[]string]{fact: e.Groups, at: v.now, from: after(v.now, v.lag(LagMetadataGroups, e.ID)), resource: e.ID})
	}
}

// showGone runs when a detachment begins: the metadata know of it independently of the API.
func (v *VPC) showGone(e *ENI) {
	m := v.metaOf(e)
	if m == nil {
		return
	}
	k := &m.places[len(m.places)-1]
	k.gone = v.now
	v.drawGone(k)
	m.last = e
}

// redraw draws anew what is not shown yet, after a change of lags.
func (v *VPC) redraw(i *instance) {
	for _, id := range sortedKeys(i.meta) {
		m := i.meta[id]
		for n := range m.places {
			k := &m.places[n]
			if k.from.After(v.now) || k.leaves.After(v.now) || k.device.After(v.now) {
				v.drawPlace(k)
			}
			if !k.gone.IsZero() && k.until.After(v.now) {
				v.drawGone(k)
			}
		}
		for n := range m.items {
			k := &m.items[n]
			switch {
			case !k.from.After(v.now):
			case k.instant: // with its MAC
				k.from = m.places[len(m.places)-1].from
			default:
				k.from = after(k.at, v.lag(LagMetadataAssign, k.resource))
			}
			if !k.gone.IsZero() && k.until.After(v.now) {
				k.until = after(k.gone, v.lag(LagMetadataUnassign, k.resource))
			}
		}
		for n := range m.groups {
			if k := &m.groups[n]; k.from.After(v.now) {
				k.from = after(k.at, v.lag(LagMetadataGroups, k.resource))
			}
		}
	}
}

// forgetGone drops what the metadata will never show again.
func (i *instance) forgetGone(now time.Time) {
	for id, m := range i.meta {
		if last := m.places[len(m.places)-1]; !last.until.IsZero() && !last.until.After(now) {
			delete(i.meta, id)
		}
	}
}

// Metadata gives what the instance's metadata know: the instance as it is, and its ENIs that have leaves, by card, then device
// index, with the addresses, prefixes and groups that are shown. Call Advance first where time may have passed.
func (v *VPC) Metadata(id string) (Instance, []ENI, bool) {
	i, enis, there := v.MetadataENIs(id)
	var out []ENI
	for _, e := range enis {
		if !e.Bare {
			out = append(out, e.ENI)
		}
	}
	return i, out, there
}

// MetadataENIs is Metadata with every listed ENI, those without leaves too.
func (v *VPC) MetadataENIs(id string) (Instance, []MetadataENI, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := v.instances[id]
	if i == nil {
		return Instance{}, nil, false
	}
	i.forgetGone(v.now)
	var out []MetadataENI
	for _, eni := range sortedKeys(i.meta) {
		if e, shown := v.metaENI(i.meta[eni]); shown {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b MetadataENI) int {
		return cmp.Or(a.Attachment.compare(b.Attachment), cmp.Compare(a.ID, b.ID))
	})
	return i.clone(), out, true
}

func (v *VPC) metaENI(m *metaENI) (MetadataENI, bool) {
	var place *known[Attachment]
	for n := range m.places {
		if m.places[n].shown(v.now) {
			place = &m.places[n]
		}
	}
	if place == nil {
		return MetadataENI{}, false
	}
	base := v.enis[m.id]
	if base == nil || base.Attachment == nil || base.Attachment.ID != place.fact.ID {
		base = m.last
	}
	out := MetadataENI{
		ENI: base.clone(), Bare: place.leaves.After(v.now) || !place.bare.IsZero() && !place.bare.After(v.now),
		DeviceUnknown: place.device.After(v.now),
	}
	out.Secondary, out.Prefixes, out.IPv6, out.IPv6Prefixes = nil, nil, nil, nil
	for n := range m.items {
		if m.items[n].shown(v.now) {
			out.show(m.items[n].fact)
		}
	}
	shown := want{Addresses: out.Secondary, Prefixes: out.Prefixes, IPv6: out.IPv6, IPv6Prefixes: out.IPv6Prefixes}
	shown.sort()
	for n := range m.groups {
		if m.groups[n].shown(v.now) {
			out.Groups = slices.Clone(m.groups[n].fact)
		}
	}
	return out, true
}

func (e *MetadataENI) show(p netip.Prefix) {
	switch {
	case p.Addr() == e.Primary && p.IsSingleIP():
	case p.Addr().Is4() && p.IsSingleIP():
		e.Secondary = append(e.Secondary, p.Addr())
	case p.Addr().Is4():
		e.Prefixes = append(e.Prefixes, p)
	case p.IsSingleIP():
		e.IPv6 = append(e.IPv6, p.Addr())
	default:
		e.IPv6Prefixes = append(e.IPv6Prefixes, p)
	}
}

// shortPrefix is an address without its length, or a prefix.
func shortPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
