package store

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// version is the format that is written. A reader takes every version up to its own; see steps.
const version = 1

// document is the file. Times are UTC.
type document struct {
	Version     int          `json:"version"`
	BootID      string       `json:"bootID"`
	Assignments []assignment `json:"assignments"`
	Cooling     []cooling    `json:"cooling"`
	Annotations []annotation `json:"annotations"`
	Emptied     []emptied    `json:"emptied,omitempty"` // not known to the first releases, which ignore it
}

type pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

type assignment struct {
	Address netip.Addr `json:"address"`
	ENI     string     `json:"eni"`
	Pod     pod        `json:"pod"`
	Network string     `json:"network"`
	Sandbox string     `json:"sandbox"`
	IfName  string     `json:"ifName"`
	NetNS   string     `json:"netns,omitempty"`
	Done    bool       `json:"done"`
	Since   time.Time  `json:"since"`
	Seq     uint64     `json:"seq,omitempty"`
}

type cooling struct {
	Address netip.Addr `json:"address"`
	Pod     pod        `json:"pod"`
	Until   time.Time  `json:"until"`
}

type annotation struct {
	Pod     pod          `json:"pod"`
	Sandbox string       `json:"sandbox"`
	Address netip.Addr   `json:"address"`
	More    []netip.Addr `json:"more,omitempty"`
	Keys    []string     `json:"keys"`
	Stale   []string     `json:"stale,omitempty"`
	Emptied []string     `json:"emptied,omitempty"`
	Wish    pool.Wish    `json:"wish"`
	Since   time.Time    `json:"since"`
}

type emptied struct {
	Pod   pod       `json:"pod"`
	Keys  []string  `json:"keys"`
	Since time.Time `json:"since"`
}

// decode reads a document of any version that the steps lead from.
func decode(data []byte, steps []step) (pool.Snapshot, error) {
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return pool.Snapshot{}, fmt.Errorf("decode state: %w", err)
	}
	if head.Version == nil {
		return pool.Snapshot{}, fmt.Errorf("decode state: no version")
	}
	data, err := migrate(data, *head.Version, steps)
	if err != nil {
		return pool.Snapshot{}, err
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return pool.Snapshot{}, fmt.Errorf("decode state: %w", err)
	}
	if err := doc.validate(); err != nil {
		return pool.Snapshot{}, err
	}
	return doc.snapshot(), nil
}

// step turns a document of one version into the next version's.
type step func(doc map[string]any) error

// steps gives the step from each older version; its length is what makes version: version-1 steps lead from 1 to it.
func steps() []step { return nil }

// migrate brings a document from its version to the one after the last step.
func migrate(data []byte, from int, steps []step) ([]byte, error) {
	newest := len(steps) + 1
	if from < 1 || from > newest {
		return nil, fmt.Errorf("decode state: version %d is not known (1 to %d are)", from, newest)
	}
	if from == newest {
		return data, nil
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode state: %w", err)
	}
	for v := from; v < newest; v++ {
		if err := steps[v-1](doc); err != nil {
			return nil, fmt.Errorf("migrate state from version %d: %w", v, err)
		}
		doc["version"] = v + 1
	}
	return json.Marshal(doc)
}

func (doc document) validate() error {
	for i, at := range doc.times() {
		if year := at.UTC().Year(); year < 1 || year > lastYear {
			return fmt.Errorf("decode state: time %d lies in the year %d", i, year)
		}
	}
	for i, a := range doc.Assignments {
		if !a.Address.IsValid() || a.Sandbox == "" {
			return fmt.Errorf("decode state: assignment %d has no address or no sandbox", i)
		}
	}
	for i, c := range doc.Cooling {
		if !c.Address.IsValid() {
			return fmt.Errorf("decode state: cooling entry %d has no address", i)
		}
	}
	for i, a := range doc.Annotations {
		switch a.Wish {
		case pool.WishPresent, pool.WishEmpty, pool.WishAbsent:
		default:
			return fmt.Errorf("decode state: annotation %d has the unknown wish %q", i, a.Wish)
		}
		if !a.Address.IsValid() {
			return fmt.Errorf("decode state: annotation %d has no address", i)
		}
	}
	return nil
}

// lastYear is the last one that can be written again: RFC 3339 has four digits for it.
const lastYear = 9999

func (doc document) times() []time.Time {
	var list []time.Time
	for _, a := range doc.Assignments {
		list = append(list, a.Since)
	}
	for _, c := range doc.Cooling {
		list = append(list, c.Until)
	}
	for _, a := range doc.Annotations {
		list = append(list, a.Since)
	}
	for _, e := range doc.Emptied {
		list = append(list, e.Since)
	}
	return list
}

func (doc document) snapshot() pool.Snapshot {
	snap := pool.Snapshot{BootID: doc.BootID}
	for _, a := range doc.Assignments {
		snap.Assignments = append(snap.Assignments, pool.Assignment{
			Key: pool.Key{Network: a.Network, Sandbox: a.Sandbox, IfName: a.IfName}, Pod: pool.Pod(a.Pod),
			Addr: a.Address, ENI: a.ENI, NetNS: a.NetNS, Done: a.Done, Since: a.Since, Seq: a.Seq,
		})
	}
	for _, c := range doc.Cooling {
		snap.Cooling = append(snap.Cooling, pool.Cooling{Addr: c.Address, Pod: pool.Pod(c.Pod), Until: c.Until})
	}
	for _, a := range doc.Annotations {
		snap.Annotations = append(snap.Annotations, pool.Annotation{
			Owner: pool.Owner{Pod: pool.Pod(a.Pod), Sandbox: a.Sandbox, Addr: a.Address},
			More:  a.More, Keys: a.Keys, Stale: a.Stale, Emptied: a.Emptied, Wish: a.Wish, Since: a.Since,
		})
	}
	for _, e := range doc.Emptied {
		snap.Emptied = append(snap.Emptied, pool.Emptied{Pod: pool.Pod(e.Pod), Keys: e.Keys, Since: e.Since})
	}
	return snap
}
