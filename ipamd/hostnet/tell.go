package hostnet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stepsShown bounds a log line: a node with fifteen ENIs is set up in about a hundred steps.
const stepsShown = 20

// tell logs what a pass has done, and reports the repairs.
func (h *Host) tell(set, repaired []step) {
	if len(set) > 0 {
		h.log.Info("kernel state set", "steps", shown(set))
	}
	if len(repaired) == 0 {
		return
	}
	h.log.Warn("kernel state was changed by others, repaired", "steps", shown(repaired))
	var kinds []string
	for _, s := range repaired {
		if s.pod && s.kind == kindNeighbour {
			continue // written with the route, whether it was lost or not
		}
		h.cfg.Repaired(s.kind)
		if !slices.Contains(kinds, s.kind) {
			kinds = append(kinds, s.kind)
		}
	}
	for _, kind := range h.repeats.note(kinds, time.Now()) {
		h.culprit = fmt.Sprintf("another program removes or changes this node's %s objects of ours again and again; known to do so: %s", kind, suspect(kind))
		h.log.Warn("kernel state is changed by others again and again", "kind", kind, "suspect", suspect(kind))
		h.cfg.Event("KernelStateChanged", h.culprit)
	}
}

func shown(steps []step) []string {
	var texts []string
	for i, s := range steps {
		if i == stepsShown {
			return append(texts, fmt.Sprintf("and %d more", len(steps)-i))
		}
		texts = append(texts, s.String())
	}
	return texts
}

// watchRivals logs foreign rules when they come, and when the last is gone.
func (h *Host) watchRivals(rivals []string) {
	if slices.Equal(rivals, h.rivals) {
		return
	}
	if len(rivals) == 0 {
		h.log.Info("no foreign rule is before ours any more")
	} else {
		h.log.Warn("foreign rules get pods' packets before ours do", "rules", rivals)
		h.cfg.Event("ForeignRules", "foreign rules get pods' packets before ours do: "+strings.Join(rivals, "; "))
	}
	h.rivals = rivals
}

// Warnings says what is wrong on this node that hostnet cannot put right, one sentence each; the first Apply finds it.
func (h *Host) Warnings() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	warnings := make([]string, 0, len(h.rivals)+1)
	for _, r := range h.rivals {
		warnings = append(warnings, "foreign rule gets pods' packets before ours do: "+r)
	}
	if h.culprit != "" {
		warnings = append(warnings, h.culprit)
	}
	return warnings
}
