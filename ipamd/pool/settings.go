package pool

import "time"

// Settings are the operator's wishes. They do not change while a Pool lives: a change of a setting is a restart.
type Settings struct {
	WarmENI   int // WARM_ENI_TARGET: whole ENIs' worth of free addresses to hold; ignored when WarmIP or MinimumIP is set
	WarmIP    int // WARM_IP_TARGET: free addresses to hold; <= 0 is "not set"
	MinimumIP int // MINIMUM_IP_TARGET: addresses to hold in all, used or not; <= 0 is "not set". Alone it makes a fixed pool
	MaxENI    int // MAX_ENI: ENIs in all, the primary one included; <= 0 is the instance type's limit

	Cooldown   time.Duration // IP_COOLDOWN_PERIOD: how long a released address rests
	SurplusAge time.Duration // how long addresses must have been too many before any is given back; 0 is DefaultSurplusAge

	Annotate bool     // ANNOTATE_POD_IP
	Keys     []string // ANNOTATE_POD_IP_KEYS

	BootID string // of the running kernel; a snapshot with another one speaks of sandboxes that are gone
	Seed   uint64 // for jitter and client tokens: random in the daemon, fixed in tests
}

const (
	// DefaultSurplusAge outlasts the replacement of a pod (grace period, image pull) many times over. Cilium's operator
	// waits as long before it gives addresses back.
	DefaultSurplusAge = 3 * time.Minute

	// settle is how long EC2's descriptions may lag behind what a call has answered; seen: up to 10 s.
	settle = 15 * time.Second

	// linkPatience is how long an attached ENI's link may take to appear in the guest before its addresses no longer
	// count as coming. Usual is under 5 s, the longest healthy one seen 150 s.
	linkPatience = 3 * time.Minute

	// interruptedRest is the least that an address rests whose ADD was cut off by a restart: its plugin may be in the middle of
	// its kernel work, and learns only then that nobody listens.
	interruptedRest = 30 * time.Second

	// clearPatience is how long an address whose annotation is not cleared yet is handed out last.
	clearPatience = 10 * time.Minute

	// learnFirst and learnLimit are how long a limit that EC2 taught by refusing is believed: longer with each refusal. The
	// first time it may have been a stale reading that made us ask for too much.
	learnFirst = time.Minute
	learnLimit = time.Hour
)

// byAddress tells whether the targets count addresses rather than ENIs.
func (s Settings) byAddress() bool { return s.WarmIP > 0 || s.MinimumIP > 0 }

// fixed tells whether the pool has one size for ever: MINIMUM_IP_TARGET alone, as the incumbent reads it.
func (s Settings) fixed() bool { return s.MinimumIP > 0 && s.WarmIP <= 0 }
