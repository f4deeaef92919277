package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ownPrefixes begin the names of settings; a name with such a prefix that is none is probably misspelled.
var ownPrefixes = [...]string{"ANNOTATE_", "AWS_VPC_", "VPC_CNI_", "WARM_", "MINIMUM_"}

const (
	// slip is how many letters a name may differ from a setting's and still be taken for it: two slips of the finger.
	slip = 2
	// shortName is the length up to which one slip is all: POD_CPU is no POD_MTU.
	shortName = 8
)

// serviceLink is a name that Kubernetes gives every container of a namespace for each service ("vpc-cni" makes
// VPC_CNI_SERVICE_HOST and VPC_CNI_PORT_80_TCP). A plain ..._PORT is one only with a URL as its value.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=|_PORT=(tcp|udp|sctp)://|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=`)

// noteStrangers remarks on names that look like settings and are none, with the setting that is nearest. They are no errors:
// an older daemon must start under a newer chart.
func (s *Settings) noteStrangers(given map[string]string) {
	known := s.names()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(known, name) || serviceLink.MatchString(name+"="+given[name]) {
			continue
		}
		near, apart := nearest(name, known)
		limit := slip
		if len(near) <= shortName {
			limit = 1
		}
		if apart <= limit || hasOwnPrefix(name) {
			s.Notes = append(s.Notes, name+" is not a setting of this daemon and has no effect; the nearest one is "+near+": is it misspelled?")
		}
	}
}

// names are all settings, in the order of the table, and then the incumbent's that are known here.
func (s *Settings) names() []string {
	var names []string
	for _, setting := range s.settings(nil) {
		names = append(names, setting.name)
	}
	for _, f := range compatibility() {
		names = append(names, f.name)
	}
	return names
}

func hasOwnPrefix(name string) bool {
	return slices.ContainsFunc(ownPrefixes[:], func(prefix string) bool { return strings.HasPrefix(strings.ToUpper(name), prefix) })
}

// nearest gives the first of the names with the smallest distance, without regard to case.
func nearest(name string, names []string) (near string, apart int) {
	for _, other := range names {
		if d := distance(strings.ToUpper(name), strings.ToUpper(other)); near == "" || d < apart {
			near, apart = other, d
		}
	}
	return near, apart
}

// distance counts the letters that must be put in, left out, replaced or swapped with their neighbour to make a of b (optimal
// string alignment).
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
