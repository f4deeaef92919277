package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Problem is one setting whose value cannot be used.
type Problem struct {
	Setting, Value string
	Accepts        string // what would do
	Cause          string // more, where there is more to say
}

func (p Problem) String() string {
	line := fmt.Sprintf("%s=%q: want %s", p.Setting, p.Value, p.Accepts)
	if p.Cause != "" {
		line += " (" + p.Cause + ")"
	}
	return line
}

// Error is every problem of the settings, in the order of the table, and the remarks that a log would have had: a daemon that
// does not start has no log.
type Error struct {
	Problems []Problem
	Notes    []string
}

func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, fmt.Sprintf("read settings: %d cannot be used", len(e.Problems)))
	for _, problem := range e.Problems {
		lines = append(lines, "  "+problem.String())
	}
	for _, note := range e.Notes {
		lines = append(lines, "  note: "+note)
	}
	return strings.Join(lines, "\n")
}

// Environment gives the process's environment to Load.
func Environment() []string { return os.Environ() }

// KeyParser reads a comma-separated list of annotation keys: all of them, and those whose value is all of a pod's addresses.
// Its error names what is wrong with the list.
type KeyParser func(text string) (names, joined []string, err error)

// Load reads the settings from an environment ("NAME=value" strings). The error is an *Error that lists everything that is
// wrong; the settings are then of no use.
func Load(environment []string, keys KeyParser) (Settings, error) {
	var s Settings
	given := parse(environment)
	s.Given = map[string]string{}
	var problems []Problem
	for _, setting := range s.settings(keys) {
		value := given[setting.name]
		if value == "" {
			value = setting.standard
		}
		s.Given[setting.name] = value
		if value == "" {
			continue
		}
		if err := setting.value.set(value); err != nil {
			problems = append(problems, problem(setting, value, err))
		}
	}
	problems = append(problems, s.readForeign(given)...)
	if len(problems) == 0 {
		problems = s.finish()
	}
	s.noteStrangers(given)
	if len(problems) > 0 {
		return Settings{}, &Error{Problems: problems, Notes: s.Notes}
	}
	return s, nil
}

// parse takes the later of two equal names, as the C library's getenv of most systems does not: execve passes both, and
// the Go runtime keeps the last.
func parse(environment []string) map[string]string {
	given := make(map[string]string, len(environment))
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		given[name] = value
	}
	return given
}

func problem(s setting, value string, err error) Problem {
	p := Problem{Setting: s.name, Value: value, Accepts: s.value.accepts()}
	if err != errValue {
		p.Cause = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return p
}

// readForeign refuses what this daemon cannot do and notes what has no effect.
func (s *Settings) readForeign(given map[string]string) []Problem {
	var problems []Problem
	for _, f := range compatibility() {
		value, ok := given[f.name]
		switch {
		case !ok || value == "":
		case !f.takes(value):
			problems = append(problems, Problem{Setting: f.name, Value: value, Accepts: f.accepts()})
		case f.harmless == nil && f.why != informational:
			s.Notes = append(s.Notes, fmt.Sprintf("%s has no effect: %s", f.name, f.why))
		}
	}
	return problems
}

// healthSocket is the name that the incumbent's probes know.
const healthSocket = "ipamd.sock"

// HealthSocket gives the path of the socket on which a daemon of this environment answers, whatever else is wrong with its
// settings.
func HealthSocket(environment []string) (string, error) {
	given := parse(environment)
	var only []string
	for _, name := range []string{"VPC_CNI_SOCKET", "VPC_CNI_HEALTH_SOCKET"} {
		only = append(only, name+"="+given[name])
	}
	s, err := Load(only, func(string) ([]string, []string, error) { return nil, nil, nil })
	return s.HealthSocket, err
}

// finish fills what depends on several settings and checks them against each other.
func (s *Settings) finish() []Problem {
	if s.PodMTU == 0 {
		s.PodMTU = s.ENIMTU
	}
	if s.PodMTU > s.ENIMTU {
		s.Notes = append(s.Notes, "POD_MTU is above AWS_VPC_ENI_MTU: large packets will be fragmented or refused by the node")
	}
	if s.HealthSocket == "" {
		s.HealthSocket = filepath.Join(filepath.Dir(s.Socket), healthSocket)
	}
	if s.HealthSocket == s.Socket {
		return []Problem{{Setting: "VPC_CNI_HEALTH_SOCKET", Value: s.HealthSocket, Accepts: "another path than VPC_CNI_SOCKET's"}}
	}
	for _, key := range slices.Sorted(maps.Keys(s.ENITags)) {
		if strings.Contains(key, "k8s.amazonaws.com") {
			delete(s.ENITags, key)
			s.Notes = append(s.Notes, fmt.Sprintf("ADDITIONAL_ENI_TAGS: %q is left out: such keys are the daemon's own", key))
		}
	}
	if s.AnnotatePodIP && s.NodeName == "" {
		return []Problem{{Setting: "MY_NODE_NAME", Accepts: "this node's name, because ANNOTATE_POD_IP is on"}}
	}
	return nil
}
