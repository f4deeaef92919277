package ipamd

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/kube"
)

const (
	// checkRetry is the pace of attempts while the API server gives no answer: at a node's start it is often not reachable yet.
	checkRetry = 10 * time.Second
	// checkAgain is the pace of looking whether somebody has put right what was found.
	checkAgain = 10 * time.Minute
	// probeAddr is nobody's (RFC 5737), and is never written: it is the value of rehearsals.
	probeAddr = "192.0.2.1"
	// probeKey is a key that no list of keys can hold in earnest (RFC 2606).
	probeKey = "self-check.invalid/pod-ips"
)

// Kinds of trouble, as they appear in the metric.
const (
	troublePermission = "permission"
	troubleKeys       = "keys"
	troublePolicy     = "policy"
)

// selfCheck finds out early whether annotations can be written, and only they: the first refused patch would say the former
// too, but only when the first pod starts. It never holds anything up. The zero value checks nothing.
type selfCheck struct {
	client *kube.Client
	keys   []string
	events *kube.Events
	log    *slog.Logger

	mu    sync.Mutex
	found map[string]string // by kind, what to do about it; "" where it is well
}

func newSelfCheck(client *kube.Client, keys []string, events *kube.Events, log *slog.Logger) *selfCheck {
	return &selfCheck{client: client, keys: keys, events: events, log: log, found: map[string]string{
		troublePermission: "", troubleKeys: "", troublePolicy: "",
	}}
}

// trouble is what the metric shows.
func (s *selfCheck) trouble() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	trouble := map[string]bool{}
	for kind, advice := range s.found {
		trouble[kind] = advice != ""
	}
	return trouble
}

// run checks until all is well.
func (s *selfCheck) run(ctx context.Context) error {
	if s.client == nil {
		return nil
	}
	for {
		pause := checkRetry
		identity, found, err := s.look(ctx)
		switch {
		case err != nil:
			s.log.Debug("annotations' self-check has no answer yet", "err", err)
		case s.fold(identity, found):
			return nil
		default:
			pause = checkAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// look asks the API server everything once. An error says that it could not be asked.
func (s *selfCheck) look(ctx context.Context) (identity kube.Identity, found map[string]string, err error) {
	found = map[string]string{}
	if identity, err = s.client.WhoAmI(ctx); err != nil {
		return identity, nil, err
	}
	var missing []string
	for _, verb := range []string{"get", "list", "watch", "patch"} {
		allowed, err := s.client.MayPods(ctx, verb)
		if err != nil {
			return identity, nil, err
		}
		if !allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) > 0 {
		found[troublePermission] = identity.User + " may not " + strings.Join(missing, ", ") +
			" pods: grant it (ipamd/deploy/manifests/rbac.yaml and annotation-grant.yaml), or turn ANNOTATE_POD_IP off"
	}
	if slices.Contains(missing, "patch") || identity.Pod.Name == "" {
		return identity, found, nil // nothing, or nobody's pod, to rehearse with
	}
	s.rehearse(ctx, identity, found)
	return identity, found, nil
}

// rehearse tries what must pass and what should not on the daemon's own pod, as dry runs. Admission that takes no dry runs
// leaves the question open, which is no trouble.
func (s *selfCheck) rehearse(ctx context.Context, identity kube.Identity, found map[string]string) {
	values := map[string]string{}
	for _, key := range s.keys {
		values[key] = probeAddr
	}
	refused, err := s.client.RehearseAnnotations(ctx, identity.Pod, values)
	if err != nil {
		s.log.Debug("annotation keys cannot be rehearsed", "err", err)
	}
	if refused != "" {
		found[troubleKeys] = "the API server would not take the annotations of ANNOTATE_POD_IP_KEYS: list every key as current in ConfigMap " +
			"kube-system/aws-node-annotation-keys, or exempt this service account from the webhook or policy that it names (" + refused + ")"
	}
	refused, err = s.client.RehearseAnnotations(ctx, identity.Pod, map[string]string{probeKey: probeAddr})
	if err == nil && refused == "" {
		found[troublePolicy] = "no admission policy keeps " + identity.User + " to its annotation keys: apply ipamd/deploy/manifests/annotation-policy.yaml and annotation-keys.yaml"
	}
}

// fold takes what was found, tells people of what is new, and tells whether all is well.
func (s *selfCheck) fold(identity kube.Identity, found map[string]string) bool {
	s.mu.Lock()
	before, fresh := false, false
	for kind, advice := range s.found {
		before = before || advice != ""
		fresh = fresh || advice == "" && found[kind] != ""
		s.found[kind] = found[kind]
	}
	s.mu.Unlock()
	switch {
	case fresh:
		s.tell(identity, found)
	case before && len(found) == 0:
		s.log.Info("annotations' self-check finds nothing wrong any more")
	}
	return len(found) == 0
}

// people are told by events.
type people interface {
	Warn(reason, message string)
	Normal(reason, message string)
}

// tell writes one line and one event, on the daemon's pod where it is known, else on the node. A missing policy alone may be
// meant: clusters before Kubernetes 1.30 have none.
func (s *selfCheck) tell(identity kube.Identity, found map[string]string) {
	const reason = "PodAnnotationSelfCheck"
	kinds := slices.Sorted(maps.Keys(found))
	var advice []string
	for _, kind := range kinds {
		advice = append(advice, found[kind])
	}
	message := strings.Join(advice, ". ") + ". Pods start either way."
	s.log.Warn("annotations' self-check found trouble", "kinds", kinds, "advice", message)
	var events people = s.events
	if identity.Pod.Name != "" {
		events = s.events.On(identity.Pod)
	}
	if len(found) == 1 && found[troublePolicy] != "" {
		events.Normal(reason, message)
		return
	}
	events.Warn(reason, message)
}
