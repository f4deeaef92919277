package pool

import (
	"errors"
	"time"
)

// blockKey names what must not be tried yet: an action's name, and the ENI or subnet where it is only that one's.
type blockKey struct{ what, target string }

// block is a not-before time.
type block struct {
	until time.Time
	why   string
	tries int
}

// backoff is how a not-before time grows: doubled at every failure in a row from first to limit, plus up to half of it at
// random, so that a thousand nodes that were refused together do not come back together.
type backoff struct {
	why          string
	first, limit time.Duration
}

func (p *Pool) block(now time.Time, key blockKey, b backoff) {
	tries := p.blocks[key].tries
	wait := b.first
	for range tries {
		if wait *= 2; wait >= b.limit {
			wait = b.limit
			break
		}
	}
	wait += time.Duration(p.rng.Int64N(int64(wait)/2 + 1))
	p.blocks[key] = block{until: now.Add(wait), why: b.why, tries: tries + 1}
}

func (p *Pool) unblock(what, target string) { delete(p.blocks, blockKey{what, target}) }

// blocked tells whether an action (of this target, or in general) must wait.
func (p *Pool) blocked(now time.Time, what, target string) (block, bool) {
	if b := p.blocks[blockKey{what, ""}]; b.until.After(now) {
		return b, true
	}
	b := p.blocks[blockKey{what, target}]
	return b, b.until.After(now)
}

// sizeCap is the largest number of addresses worth asking for at once.
type sizeCap struct {
	n     int
	until time.Time
}

// capped is how many of want addresses to ask for. A request is all or nothing: after a refusal for want of room, half is
// asked for.
func (p *Pool) capped(now time.Time, target string, want int) int {
	if c := p.caps[target]; c.until.After(now) {
		return min(want, c.n)
	}
	return want
}

// halve notes a refusal of n addresses and tells whether a smaller request is worth trying.
func (p *Pool) halve(now time.Time, target string, n int) bool {
	if n <= 1 {
		delete(p.caps, target)
		return false
	}
	p.caps[target] = sizeCap{n: n / 2, until: now.Add(subnetRest)}
	return true
}

// subnetRest is how long a full subnet is left alone: addresses come back when other nodes shrink, which takes minutes.
// The incumbent waits as long.
const subnetRest = 2 * time.Minute

// classify gives an error's class and a text for people.
func classify(err error) (CloudClass, string) {
	var cloud *CloudError
	if errors.As(err, &cloud) {
		return cloud.Class, cloud.Error()
	}
	return ClassUnknown, err.Error()
}
