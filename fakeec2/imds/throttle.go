package imds

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limit is how many requests an instance may make: PerSecond on average, Burst at once. What is more is answered with 503. The
// zero Limit is none. EC2 has one for each instance and does not say which.
type Limit struct {
	PerSecond float64 `json:"perSecond"`
	Burst     int     `json:"burst"`
}

// throttles are the buckets of all instances.
type throttles struct {
	mu      sync.Mutex
	limit   Limit
	buckets map[string]*rate.Limiter // by instance
}

// SetLimit changes the limit of all instances; their buckets are full again.
func (s *Server) SetLimit(l Limit) {
	s.throttle.mu.Lock()
	defer s.throttle.mu.Unlock()
	s.throttle.limit, s.throttle.buckets = l, map[string]*rate.Limiter{}
}

func (t *throttles) allow(instance string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit == (Limit{}) {
		return true
	}
	bucket := t.buckets[instance]
	if bucket == nil {
		bucket = rate.NewLimiter(rate.Limit(t.limit.PerSecond), t.limit.Burst)
		t.buckets[instance] = bucket
	}
	return bucket.AllowN(now, 1)
}
