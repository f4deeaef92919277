package annotate

import (
	"slices"
	"sync"
)

// lanes is the order in which pods are worked on: those with a fresh record first, all others (retries, passes) in the order
// they came. It is the storage of a workqueue, which calls it under its own lock; urge is called by anybody.
type lanes struct {
	fresh, others []podName

	mu     sync.Mutex
	urgent map[podName]bool
}

// urge lets the next Push of the pod, or the Touch of one that waits, take the fresh lane.
func (l *lanes) urge(name podName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.urgent == nil {
		l.urgent = map[podName]bool{}
	}
	l.urgent[name] = true
}

// takeUrgent tells whether the pod is urgent, and that only once.
func (l *lanes) takeUrgent(name podName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	urgent := l.urgent[name]
	delete(l.urgent, name)
	return urgent
}

// Push adds a pod.
func (l *lanes) Push(name podName) {
	if l.takeUrgent(name) {
		l.fresh = append(l.fresh, name)
		return
	}
	l.others = append(l.others, name)
}

// Touch is told that a waiting pod was added again.
func (l *lanes) Touch(name podName) {
	if !l.takeUrgent(name) {
		return
	}
	if at := slices.Index(l.others, name); at >= 0 {
		l.others = slices.Delete(l.others, at, at+1)
		l.fresh = append(l.fresh, name)
	}
}

// Len counts the waiting pods.
func (l *lanes) Len() int { return len(l.fresh) + len(l.others) }

// Pop takes the next pod.
func (l *lanes) Pop() podName {
	lane := &l.fresh
	if len(*lane) == 0 {
		lane = &l.others
	}
	name := (*lane)[0]
	*lane = slices.Delete(*lane, 0, 1)
	return name
}
