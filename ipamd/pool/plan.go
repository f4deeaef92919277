package pool

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decision is the last Plan with its grounds: the one answer to "why did it do that" and "why did it not".
type Decision struct {
	At      time.Time
	Actions []string // as planned, in order
	Reason  string   // one sentence
	Tally   Tally
	Short   int      // addresses that are missing
	Surplus int      // addresses that are too many
	Blocked []string // what must wait, and until when
}

// String prints the decision on one line.
func (d Decision) String() string {
	parts := []string{d.Reason}
	if len(d.Actions) > 0 {
		parts = append(parts, "do: "+strings.Join(d.Actions, "; "))
	}
	if len(d.Blocked) > 0 {
		parts = append(parts, "wait: "+strings.Join(d.Blocked, "; "))
	}
	return strings.Join(parts, ". ")
}

// Tally counts addresses by what they are good for.
type Tally struct {
	Free, InUse, Occupied, Cooling, Clearing, Coming int
	Total                                            int // on attached ENIs of ours
	SoonFree                                         int // cooling, but not for much longer
	ENIs                                             int // places taken on the instance
}

// soon is how long a small shortage may wait for a cooldown to end instead of asking EC2: the default cooldown and a margin.
const soon = 40 * time.Second

func (p *Pool) tally(now time.Time) Tally {
	t := Tally{ENIs: p.attachments()}
	for _, e := range p.order {
		if !e.managed() || !e.attached() {
			continue
		}
		late := e.overdue(now)
		for _, a := range e.addresses {
			c := p.condition(a, now)
			if c == Leaving || c == Coming && late {
				continue
			}
			t.Total++
			switch c {
			case Free:
				t.Free++
			case InUse:
				t.InUse++
			case Occupied:
				t.Occupied++
			case Resting:
				t.Cooling++
				if a.until.Sub(now) <= soon && a.eni.reported {
					t.SoonFree++
				}
			case Clearing:
				t.Clearing++
			case Coming:
				t.Coming++
			}
		}
	}
	return t
}

// overdue tells whether the link should have appeared long ago.
func (e *eni) overdue(now time.Time) bool {
	return !e.reported && !e.absent.IsZero() && now.Sub(e.absent) >= linkPatience
}

// perENI is the secondary addresses that an ENI of this instance type can hold.
func (p *Pool) perENI() int { return max(0, p.instance.Limits.AddressesPerENI-1) }

// maxENIs is how many ENIs the instance may have.
func (p *Pool) maxENIs(now time.Time) int {
	n := p.instance.Limits.ENIs
	if p.set.MaxENI > 0 {
		n = min(n, p.set.MaxENI)
	}
	if _, learnt := p.blocked(now, limitENIs, ""); learnt {
		n = min(n, p.learnedENIs)
	}
	return n
}

// warm is how many free addresses the settings want.
func (p *Pool) warm() int {
	switch {
	case p.set.byAddress():
		return max(0, p.set.WarmIP)
	case p.set.WarmENI <= 0:
		return 1 // like the incumbent: the next ENI is wanted when the last free address is gone
	}
	return p.set.WarmENI * p.perENI()
}

// short is how many addresses are missing.
func (p *Pool) short(t Tally) int {
	short := 0
	if !p.set.fixed() {
		waiting := max(0, p.waiting-t.Clearing)
		short = p.warm() + waiting - t.Free - t.Coming
	}
	if p.set.byAddress() {
		short = max(short, p.set.MinimumIP-t.Total)
	}
	return max(0, short)
}

// excess is how many free addresses could go without missing a target; negative when one is missed.
func (p *Pool) excess(t Tally) int {
	n := t.Free - p.warm() - max(0, p.waiting-t.Clearing)
	if p.set.byAddress() {
		n = min(n, t.Total-p.set.MinimumIP)
	}
	return n
}

// patient tells whether a shortage can wait for cooldowns to end: it is small, most of the warm pool is there, nobody waits.
// This is what makes the replacement of a pod cost no call. Cooling addresses do not count as warm for anything else.
func (p *Pool) patient(t Tally, short int) bool {
	return p.waiting == 0 && t.SoonFree >= short && t.Free > 0 && t.Free*2 >= p.warm() && p.set.MinimumIP-t.Total <= 0
}

// Plan gives the steps that the targets, the waiting ADDs and repairs ask for at this moment, most urgent first. Each step
// is about another ENI, so that any of them may be carried out. It is empty when nothing is to be done, when all that is
// to be done must wait (see NextWake), and when EC2 must be read first (see NeedObserve). Decision says why.
func (p *Pool) Plan(now time.Time) []Action {
	p.decision = Decision{At: now, Blocked: p.waits(now)}
	d := &p.decision
	if p.unsure != "" {
		d.Reason = "EC2 must be read first: " + p.unsure
		return nil
	}
	d.Tally = p.tally(now)
	d.Short = p.short(d.Tally)
	d.Surplus = max(0, p.excess(d.Tally))
	due := p.surplus.watch(p.excess(d.Tally), d.Short > 0 || !p.hostSeen, now, p.set.SurplusAge)
	actions := p.repairs(now)
	short := d.Short
	switch {
	case p.perENI() == 0:
		d.Reason = "the limits of instance type " + p.instance.Type + " are not known"
		short = 0
	case short > 0 && p.patient(d.Tally, short):
		d.Reason = fmt.Sprintf("%d short of the target, but as many cooldowns end soon", short)
		short = 0
	case short > 0:
		grow := p.grow(now, short)
		d.Reason = fmt.Sprintf("%d addresses are missing", short)
		if len(grow) == 0 {
			d.Reason += ": " + p.whyNoGrowth(now)
		}
		actions = append(actions, grow...)
	default:
		shrink := p.shrink(now, due)
		d.Reason = "the targets are met"
		if len(shrink) > 0 {
			d.Reason = fmt.Sprintf("%d free addresses have been too many for %s", due, p.set.SurplusAge)
		}
		actions = append(actions, shrink...)
	}
	if p.perENI() > 0 {
		actions = append(actions, p.leftovers(now, short, actions)...)
	}
	for _, a := range actions {
		d.Actions = append(d.Actions, a.String())
	}
	return actions
}

// Decision gives the last plan with its grounds.
func (p *Pool) Decision() Decision { return p.decision }

// repairs puts right what a crash may have left: attachments that would outlive the instance.
func (p *Pool) repairs(now time.Time) []Action {
	var actions []Action
	for _, e := range p.order {
		if !e.spare() || !e.attached() || e.DeleteOnTermination || e.AttachmentID == "" {
			continue
		}
		if _, wait := p.blocked(now, "SetDeleteOnTermination", e.ID); !wait {
			actions = append(actions, SetDeleteOnTermination{ENI: e.ID, AttachmentID: e.AttachmentID})
		}
	}
	return actions
}

// touches tells whether one of the actions is about the ENI.
func touches(actions []Action, id string) bool {
	return slices.ContainsFunc(actions, func(a Action) bool {
		_, target := name(a)
		return target == id
	})
}
