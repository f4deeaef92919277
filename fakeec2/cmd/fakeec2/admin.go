package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// state is what GET /state answers: the model's own words, and where everything is.
type state struct {
	Networks   []vpc.Network
	Subnets    []vpc.Subnet
	Groups     []vpc.SecurityGroup
	Instances  []vpc.Instance
	ENIs       []vpc.ENI
	Services   []vpc.Service
	Outsides   []vpc.Outside
	Peerings   []vpc.Peering
	Namespaces map[string]string // name -> path
	Drops      map[string]uint64 // by reason
}

// faultChange is the body of POST /faults; its parts are done in this order.
type faultChange struct {
	Clear  bool             `json:"clear"`
	Remove []string         `json:"remove"`
	Add    []scenario.Fault `json:"add"`
	On     []string         `json:"on"`
	Off    []string         `json:"off"`
}

// admin is the handler of the admin socket.
func (v *server) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", v.getState)
	mux.HandleFunc("GET /journal", v.getJournal)
	mux.HandleFunc("GET /drops", v.getDrops)
	mux.HandleFunc("GET /faults", v.getFaults)
	mux.HandleFunc("POST /faults", v.postFaults)
	mux.HandleFunc("GET /delays", v.getDelays)
	mux.HandleFunc("POST /delays", v.postDelays)
	mux.HandleFunc("GET /buckets", v.getBuckets)
	mux.HandleFunc("POST /buckets", v.postBuckets)
	mux.HandleFunc("GET /lags", v.getLags)
	mux.HandleFunc("POST /lags", v.postLags)
	v.actions(mux)
	return mux
}

func (v *server) getState(w http.ResponseWriter, _ *http.Request) {
	m := v.Model.Snapshot()
	drops, err := v.plane.Counters()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, state{
		Networks: m.VPCs, Subnets: m.Subnets, Groups: m.Groups, Instances: m.Instances, ENIs: m.ENIs, Services: m.Services,
		Outsides: m.Outsides, Peerings: m.Peerings, Namespaces: v.plane.Namespaces(), Drops: drops,
	})
}

func (v *server) getJournal(w http.ResponseWriter, r *http.Request) {
	var since uint64
	if text := r.FormValue("since"); text != "" {
		var err error
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			http.Error(w, fmt.Sprintf("read since: %v", err), http.StatusBadRequest)
			return
		}
	}
	reply(w, append([]ec2api.Entry{}, v.ec2.Journal(since)...)) // none is [], not null
}

func (v *server) getDrops(w http.ResponseWriter, _ *http.Request) {
	counters, err := v.plane.Counters()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, counters)
}

func (v *server) getFaults(w http.ResponseWriter, _ *http.Request) {
	reply(w, append([]fault.State{}, v.Faults.States()...))
}

func (v *server) postFaults(w http.ResponseWriter, r *http.Request) {
	var change faultChange
	if !read(w, r, &change) {
		return
	}
	if err := v.changeFaults(change); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, append([]fault.State{}, v.Faults.States()...))
}

func (v *server) changeFaults(change faultChange) error {
	rules, err := v.checkFaults(change)
	if err != nil {
		return err
	}
	if change.Clear {
		v.Faults.Clear()
	}
	for _, name := range change.Remove {
		if !v.Faults.Remove(name) {
			return noFault("remove", name)
		}
	}
	for _, rule := range rules {
		if err := v.Faults.Add(rule); err != nil {
			return err
		}
	}
	for on, names := range map[bool][]string{true: change.On, false: change.Off} {
		for _, name := range names {
			if !v.Faults.Switch(name, on) {
				return noFault("switch", name)
			}
		}
	}
	return nil
}

func noFault(what, name string) error { return fmt.Errorf("%s fault %q: there is none", what, name) }

// checkFaults finds all that is wrong with a change before anything is changed.
func (v *server) checkFaults(change faultChange) ([]fault.Rule, error) {
	var after fault.Table // what the change would leave
	var wrong []error
	if !change.Clear {
		for _, state := range v.Faults.States() {
			wrong = append(wrong, after.Add(state.Rule))
		}
	}
	for _, name := range change.Remove {
		if !after.Remove(name) {
			wrong = append(wrong, noFault("remove", name))
		}
	}
	rules := make([]fault.Rule, len(change.Add))
	for i, f := range change.Add {
		rules[i] = f.Rule()
		wrong = append(wrong, after.Add(rules[i]), v.ec2.CheckFault(rules[i]))
	}
	for _, name := range slices.Concat(change.On, change.Off) {
		if !after.Switch(name, true) {
			wrong = append(wrong, noFault("switch", name))
		}
	}
	return rules, errors.Join(wrong...)
}

func (v *server) getDelays(w http.ResponseWriter, _ *http.Request) {
	d := v.Model.Delays()
	attach, link, detach, imds := scenario.Duration(d.Attach), scenario.Duration(d.Link), scenario.Duration(d.Detach), scenario.Duration(d.IMDS)
	reply(w, scenario.Delays{Attach: &attach, Link: &link, Detach: &detach, IMDS: &imds})
}

// postDelays changes the delays that the body names. The delay of reuse is fixed when the model is made.
func (v *server) postDelays(w http.ResponseWriter, r *http.Request) {
	var change scenario.Delays
	if !read(w, r, &change) {
		return
	}
	if change.Reuse != nil {
		http.Error(w, "the delay \"reuse\" cannot change while the world stands", http.StatusBadRequest)
		return
	}
	v.Model.SetDelays(change.Over(v.Model.Delays()))
	v.getDelays(w, r)
}

// read decodes a body strictly; it answers itself where that fails.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.More() {
		err = errors.New("more than one JSON value")
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("read body: %v", err), http.StatusBadRequest)
		return false
	}
	return true
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client may have gone: nobody is left to tell
}
