package vpc

import "time"

// Never as a delay means that the transition does not happen (a broken host whose link never appears).
const Never = time.Duration(1<<63 - 1)

// Range is a delay that is drawn anew for each transition, evenly between Min and Max. A Max below Min counts as Min.
type Range struct{ Min, Max time.Duration }

// Exactly is the range of one delay.
func Exactly(d time.Duration) Range { return Range{d, d} }

// Lags are how long EC2's transitions take, and how long its views stay behind. Source of the defaults: what is seen on real
// EC2, single reports each; what is not told there is inferred. Never is a lag too.
type Lags struct {
	Create Range // created -> the other actions know it; default 0 (seen: usually at once, up to 5 s)
	Launch Range // RunInstances: pending -> running; default 2 s
	Attach Range // attaching -> attached in the API; default 1 s (seen: up to 60 s)
	Link   Range // attach -> the guest has the link; default 2 s (seen: up to 180 s, or never)
	Rename Range // the link is there -> an image with predictable names has renamed it; default 100 ms (seen: 16 ms to 1 s)
	Detach Range // detaching -> gone from the API, and the link with it; default 3 s (seen: up to 240 s)

	Describe Range // a change of an ENI -> DescribeNetworkInterfaces and DescribeInstances; default 0 (seen: up to 10 s)
	Count    Range // an allocation -> AvailableIpAddressCount; default 0 (seen: up to 30 s)

	MetadataMAC      Range // attach -> the MAC is listed; default 1 s (seen: up to 30 s)
	MetadataLeaves   Range // listed -> its leaves are there, 404 until then; default 0 (seen: up to 5 s)
	MetadataDevice   Range // listed -> device-number is right, 0 until then; default 0 (seen: up to 5 s)
	MetadataAssign   Range // assigned -> listed, drawn for each address and prefix; default 1 s (seen: up to 30 s)
	MetadataUnassign Range // unassigned -> no longer listed; default 2 s (seen: up to 300 s)
	MetadataGroups   Range // groups modified -> listed; default 1 s
	MetadataGone     Range // detached -> the leaves are gone; default 3 s (seen: up to 600 s)
	MetadataBare     Range // leaves gone -> the MAC is gone, too; default 0 (seen: more than 300 s)
}

// Names of lags for a Script, in the order of Lags.
const (
	LagCreate           = "create"
	LagLaunch           = "launch"
	LagAttach           = "attach"
	LagLink             = "link"
	LagRename           = "rename"
	LagDetach           = "detach"
	LagDescribe         = "describe"
	LagCount            = "count"
	LagMetadataMAC      = "metadata-mac"
	LagMetadataLeaves   = "metadata-leaves"
	LagMetadataDevice   = "metadata-device"
	LagMetadataAssign   = "metadata-assign"
	LagMetadataUnassign = "metadata-unassign"
	LagMetadataGroups   = "metadata-groups"
	LagMetadataGone     = "metadata-gone"
	LagMetadataBare     = "metadata-bare"
)

// LagNames are the names of all lags, in the order of Lags.
func LagNames() []string {
	return []string{
		LagCreate, LagLaunch, LagAttach, LagLink, LagRename, LagDetach, LagDescribe, LagCount, LagMetadataMAC, LagMetadataLeaves, LagMetadataDevice,
		LagMetadataAssign, LagMetadataUnassign, LagMetadataGroups, LagMetadataGone, LagMetadataBare,
	}
}

// Script decides single lags: of the named lag for a resource (an ENI or instance; for LagCount a subnet; for the metadata of
// an address "<eni>/<address or prefix>"). false leaves it to Lags. It must not call the model.
type Script func(lag, resource string) (time.Duration, bool)

// DefaultLags are the lags of a model that is told nothing else.
func DefaultLags() Lags {
	return Lags{
		Launch: Exactly(2 * time.Second), Attach: Exactly(defaultAttachDelay), Link: Exactly(defaultLinkDelay), Rename: Exactly(100 * time.Millisecond),
		Detach:      Exactly(defaultDetachDelay),
		MetadataMAC: Exactly(time.Second), MetadataAssign: Exactly(time.Second), MetadataUnassign: Exactly(2 * time.Second),
		MetadataGroups: Exactly(time.Second), MetadataGone: Exactly(3 * time.Second),
	}
}

// byName gives the range of a lag.
func (l *Lags) byName(name string) *Range {
	switch name {
	case LagCreate:
		return &l.Create
	case LagLaunch:
		return &l.Launch
	case LagAttach:
		return &l.Attach
	case LagLink:
		return &l.Link
	case LagRename:
		return &l.Rename
	case LagDetach:
		return &l.Detach
	case LagDescribe:
		return &l.Describe
	case LagCount:
		return &l.Count
	case LagMetadataMAC:
		return &l.MetadataMAC
	case LagMetadataLeaves:
		return &l.MetadataLeaves
	case LagMetadataDevice:
		return &l.MetadataDevice
	case LagMetadataAssign:
		return &l.MetadataAssign
	case LagMetadataUnassign:
		return &l.MetadataUnassign
	case LagMetadataGroups:
		return &l.MetadataGroups
	case LagMetadataGone:
		return &l.MetadataGone
	}
	return &l.MetadataBare
}

// Get gives the range of a lag, by one of the LagNames.
func (l *Lags) Get(name string) Range { return *l.byName(name) }

// Set sets the range of a lag, by one of the LagNames.
func (l *Lags) Set(name string, r Range) { *l.byName(name) = r }

// SetMetadata sets all that keeps the metadata behind to one lag; what makes them partial (leaves, device, bare) it leaves alone.
func (l *Lags) SetMetadata(r Range) {
	l.MetadataMAC, l.MetadataAssign, l.MetadataUnassign, l.MetadataGroups, l.MetadataGone = r, r, r, r, r
}

// lag draws a delay. A range of one delay draws nothing, so that it does not move what is drawn later.
func (v *VPC) lag(name, resource string) time.Duration {
	if v.opts.Script != nil {
		if d, decided := v.opts.Script(name, resource); decided {
			return max(0, d)
		}
	}
	r := v.lags.byName(name)
	switch {
	case r.Min == Never:
		return Never
	case r.Max <= r.Min:
		return max(0, r.Min)
	}
	return r.Min + time.Duration(v.delays.Int64N(int64(r.Max-r.Min)))
}

// after adds a lag to a time; Never gives the end of time.
func after(t time.Time, d time.Duration) time.Time {
	if d == Never {
		return endOfTime
	}
	return t.Add(d)
}

// endOfTime is later than everything that a test waits for.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Lags gives the current ones.
func (v *VPC) Lags() Lags {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lags
}

// SetLags changes the lags of transitions that begin from now on. What the metadata do not show yet is drawn anew.
func (v *VPC) SetLags(l Lags) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.setLags(l)
}

// ChangeLags changes some of the lags, as SetLags does. change must not call the model.
func (v *VPC) ChangeLags(change func(*Lags)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.lags
	change(&l)
	v.setLags(l)
}

func (v *VPC) setLags(l Lags) {
	v.lags = l
	for _, id := range sortedKeys(v.instances) {
		v.redraw(v.instances[id])
	}
}

// Delays are the four lags that most worlds set, without ranges. Here a value is taken as it is: zero is "at once".
type Delays struct {
	Attach, Link, Detach, IMDS time.Duration
}

// Delays gives the current ones (the least of a range).
func (v *VPC) Delays() Delays {
	l := v.Lags()
	return Delays{Attach: l.Attach.Min, Link: l.Link.Min, Detach: l.Detach.Min, IMDS: l.MetadataMAC.Min}
}

// SetDelays changes the delays of transitions that begin from now on, and the metadata lag at once. IMDS is the lag of every
// change; lags of single keys that are set apart from it are set by SetLags. A delay that is what it was leaves its lags alone.
func (v *VPC) SetDelays(d Delays) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.lags
	for _, change := range []struct {
		to  *Range
		now time.Duration
	}{{&l.Attach, d.Attach}, {&l.Link, d.Link}, {&l.Detach, d.Detach}} {
		if now := max(0, change.now); now != change.to.Min {
			*change.to = Exactly(now)
		}
	}
	if now := max(0, d.IMDS); now != l.MetadataMAC.Min {
		l.SetMetadata(Exactly(now))
	}
	v.setLags(l)
}
