package pingready

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Report is what a run found. Its JSON is a contract: tools read it.
type Report struct {
	Environment Environment `json:"environment"`
	Rounds      []Round     `json:"rounds"`
	Off         Summary     `json:"off"`
	On          Summary     `json:"on"`
}

// Environment is where and how a run was made.
type Environment struct {
	Cluster string            `json:"cluster"`
	Kernel  string            `json:"kernel"`
	Go      string            `json:"go"`
	Cores   int               `json:"cores"`
	Seed    uint64            `json:"seed"`
	Flags   map[string]string `json:"flags"`
}

// Knob is the setting that rounds alternate.
type Knob string

// The knob's positions.
const (
	Off Knob = "off"
	On  Knob = "on"
)

// Round is one batch of pods that were started at once. Troubles are what went wrong on the way and was got over, such as
// an ADD that failed and was tried again. AllAdded and AllReady are milliseconds from the first ADD's exec to the last one's
// result, and to the first reply to and from the last pod.
type Round struct {
	Knob     Knob     `json:"knob"`
	AllAdded *float64 `json:"all_added_ms"`
	AllReady *float64 `json:"all_ready_ms"`
	Pods     []Pod    `json:"pods"`
	Troubles []string `json:"troubles,omitempty"`
}

// Pod is what happened to one pod. Stages are milliseconds since its ADD was exec'd; nil means that it was not seen (with
// the knob off there is no annotation to see). Ping-ready times are milliseconds from the container's start to the first
// reply.
type Pod struct {
	Name              string   `json:"name"`
	Node              string   `json:"node"`
	AddMS             *float64 `json:"add_ms"`
	AnnotationVisible *float64 `json:"annotation_visible_ms"`
	PolicyProgrammed  *float64 `json:"policy_programmed_ms"`
	ContainerStart    *float64 `json:"container_start_ms"`
	StatusVisible     *float64 `json:"status_visible_ms"`
	FailedPingsIn     int      `json:"failed_pings_in"`
	FailedPingsOut    int      `json:"failed_pings_out"`
	SentPingsIn       int      `json:"sent_pings_in"`
	SentPingsOut      int      `json:"sent_pings_out"`
	PingReadyIn       *float64 `json:"ping_ready_in_ms"`
	PingReadyOut      *float64 `json:"ping_ready_out_ms"`
}

// FailedPings counts both directions.
func (p Pod) FailedPings() float64 { return float64(p.FailedPingsIn + p.FailedPingsOut) }

// PingReady is when both directions worked.
func (p Pod) PingReady() *float64 {
	if p.PingReadyIn == nil || p.PingReadyOut == nil {
		return nil
	}
	later := max(*p.PingReadyIn, *p.PingReadyOut)
	return &later
}

// Summary is one side of the comparison. A pod's failed pings are those of both directions together; it is ping-ready when
// both work.
type Summary struct {
	Pods        int       `json:"pods"`
	FailedPings Quantiles `json:"failed_pings"`
	PingReadyMS Quantiles `json:"ping_ready_ms"`
}

// Summarize fills in both sides from the rounds.
func (r *Report) Summarize() {
	r.Off, r.On = summarize(r.pods(Off)), summarize(r.pods(On))
}

func (r *Report) pods(knob Knob) (pods []Pod) {
	for _, round := range r.Rounds {
		if round.Knob == knob {
			pods = append(pods, round.Pods...)
		}
	}
	return pods
}

func summarize(pods []Pod) Summary {
	return Summary{
		Pods:        len(pods),
		FailedPings: quantiles(counts(pods, Pod.FailedPings)),
		PingReadyMS: quantiles(values(pods, Pod.PingReady)),
	}
}

// ms is a duration in milliseconds, to the microsecond.
func ms(d time.Duration) *float64 {
	value := float64(d.Microseconds()) / 1000
	return &value
}

// Write writes report.json, report.md and report.svg into a folder, which it makes if it is missing.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of report: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	picture, err := r.plot()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"report.json": append(text, '\n'), "report.md": []byte(r.markdown()), "report.svg": picture,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return nil
}
