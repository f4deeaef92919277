package fault

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bucket is a token bucket: a request takes one token and is throttled where there is none.
type Bucket struct {
	Size   float64 `json:"size"`
	Refill float64 `json:"refill"` // tokens a second
}

// Buckets are EC2's own throttling: one bucket for each account and action, and for some actions one that counts resources. They
// are safe for concurrent use, and full at first.
type Buckets struct {
	mu     sync.Mutex
	on     bool
	own    map[string]Bucket // actions with a bucket of the caller's own
	levels map[string]level
}

type level struct {
	tokens float64
	at     time.Time
}

// NewBuckets makes full buckets, which throttle only where on.
func NewBuckets(on bool) *Buckets {
	return &Buckets{on: on, own: map[string]Bucket{}, levels: map[string]level{}}
}

// Switch turns throttling on or off. Off, nothing is counted and the buckets are full again.
func (b *Buckets) Switch(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on = on; !on {
		b.levels = map[string]level{}
	}
}

// On tells whether requests are throttled.
func (b *Buckets) On() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on
}

// Set gives an action a bucket of its own, in place of EC2's.
func (b *Buckets) Set(action string, bucket Bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own[action] = bucket
	for key := range b.levels {
		if strings.HasPrefix(key, action+" ") {
			delete(b.levels, key)
		}
	}
}

// Unset gives an action EC2's bucket again; false where it had none of its own.
func (b *Buckets) Unset(action string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, own := b.own[action]
	delete(b.own, action)
	return own
}

// Own gives the buckets that are in place of EC2's, by action.
func (b *Buckets) Own() map[string]Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.own)
}

// Take takes a token for an account's request, and one for each of the resources that it asks for; false where there are too few:
// then none is taken. plain says that the request neither filters nor pages.
func (b *Buckets) Take(now time.Time, account, action string, plain bool, resources int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on {
		return true
	}
	bucket, own := b.own[action]
	class := "paged"
	switch {
	case own:
		class = "own"
	case plain && slices.Contains(dearActions(), action):
		bucket, class = Bucket{50, 10}, "plain"
	default:
		bucket = BucketOf(action)
	}
	takes := []take{{action + " " + class + " " + account, bucket, 1}}
	if counting, counts := resourceBucket(action); counts && resources > 0 {
		takes = append(takes, take{action + " resources " + account, counting, float64(resources)})
	}
	for _, t := range takes {
		if b.fill(now, t).tokens < t.cost {
			return false
		}
	}
	for _, t := range takes {
		l := b.fill(now, t)
		l.tokens -= t.cost
		b.levels[t.key] = l
	}
	return true
}

type take struct {
	key    string
	bucket Bucket
	cost   float64
}

// fill gives the bucket's level now.
func (b *Buckets) fill(now time.Time, t take) level {
	l, there := b.levels[t.key]
	if !there {
		return level{t.bucket.Size, now}
	}
	if passed := now.Sub(l.at); passed > 0 {
		l.tokens = min(t.bucket.Size, l.tokens+passed.Seconds()*t.bucket.Refill)
		l.at = now
	}
	return l
}

// dearActions have a smaller bucket for requests that neither filter nor page. Source: EC2 API reference, "Request throttling".
func dearActions() []string {
	return []string{
		"DescribeInstances", "DescribeNetworkInterfaces", "DescribeSecurityGroups", "DescribeVolumes", "DescribeSnapshots", "DescribeInstanceStatus",
		"DescribeSpotInstanceRequests",
	}
}

// BucketOf is EC2's bucket of an action. Source: EC2 API reference, "Request throttling"; accounts can have others.
func BucketOf(action string) Bucket {
	switch action {
	case "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses", "AssignIpv6Addresses", "CreateNetworkInterface", "DeleteNetworkInterface",
		"ModifyNetworkInterfaceAttribute", "TerminateInstances", "ModifyInstanceMetadataOptions":
		return Bucket{100, 5}
	case "CreateTags", "DeleteTags":
		return Bucket{100, 10}
	case "CreateSubnetCidrReservation":
		return Bucket{5, 1}
	case "RunInstances", "StartInstances":
		return Bucket{5, 2}
	}
	for _, reading := range []string{"Describe", "Get", "List"} {
		if strings.HasPrefix(action, reading) {
			return Bucket{100, 20}
		}
	}
	return Bucket{50, 5}
}

// resourceBucket counts instances beside requests.
func resourceBucket(action string) (Bucket, bool) {
	switch action {
	case "RunInstances", "StartInstances":
		return Bucket{1000, 2}, true
	case "TerminateInstances":
		return Bucket{1000, 20}, true
	}
	return Bucket{}, false
}
