package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// bucketState is what GET /buckets answers.
type bucketState struct {
	On      bool              `json:"on"`
	Buckets []scenario.Bucket `json:"buckets"` // of each action that is served
	Own     []string          `json:"own"`     // actions whose bucket is not EC2's
}

// bucketChange is the body of POST /buckets; its parts are done in this order.
type bucketChange struct {
	Reset    []string          `json:"reset"` // actions that get EC2's bucket again
	ResetAll bool              `json:"resetAll"`
	Set      []scenario.Bucket `json:"set"`
	On       *bool             `json:"on"`
}

// lagChange is the body of POST /lags; its parts are done in this order.
type lagChange struct {
	Reset bool                      `json:"reset"` // to the scenario's
	Set   map[string]scenario.Range `json:"set"`
}

func (v *server) getBuckets(w http.ResponseWriter, _ *http.Request) {
	own := v.Buckets.Own()
	s := bucketState{On: v.Buckets.On(), Buckets: []scenario.Bucket{}, Own: []string{}}
	for _, action := range v.ec2.Actions() {
		b, set := own[action]
		if !set {
			b = fault.BucketOf(action)
		} else {
			s.Own = append(s.Own, action)
		}
		s.Buckets = append(s.Buckets, scenario.Bucket{Action: action, Size: b.Size, Refill: b.Refill})
	}
	reply(w, s)
}

func (v *server) postBuckets(w http.ResponseWriter, r *http.Request) {
	var change bucketChange
	if !read(w, r, &change) {
		return
	}
	if err := v.checkBuckets(change); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for action := range v.Buckets.Own() {
		if change.ResetAll || slices.Contains(change.Reset, action) {
			v.Buckets.Unset(action)
		}
	}
	for _, b := range change.Set {
		v.Buckets.Set(b.Action, fault.Bucket{Size: b.Size, Refill: b.Refill})
	}
	if change.On != nil {
		v.Buckets.Switch(*change.On)
	}
	v.getBuckets(w, r)
}

// checkBuckets finds all that is wrong with a change before anything is changed.
func (v *server) checkBuckets(change bucketChange) error {
	var wrong []error
	known := v.ec2.Actions()
	for _, b := range change.Set {
		if !slices.Contains(known, b.Action) {
			wrong = append(wrong, fmt.Errorf("set the bucket of %q: no such action is served; fakeec2 buckets list names them", b.Action))
		}
		if b.Size < 0 || b.Refill < 0 {
			wrong = append(wrong, fmt.Errorf("set the bucket of %s: size %v and refill %v: want 0 or more", b.Action, b.Size, b.Refill))
		}
		if b.Size > 0 && b.Size < 1 {
			wrong = append(wrong, fmt.Errorf("set the bucket of %s: size %v: it would never hold a whole token; want 0, which refuses everything, or 1 and more", b.Action, b.Size))
		}
	}
	own := v.Buckets.Own()
	for _, action := range change.Reset {
		if _, set := own[action]; !set {
			wrong = append(wrong, fmt.Errorf("reset the bucket of %q: it has none of its own", action))
		}
	}
	return errors.Join(wrong...)
}

func (v *server) getLags(w http.ResponseWriter, _ *http.Request) {
	lags, all := v.Model.Lags(), map[string]scenario.Range{}
	for _, name := range scenario.LagNames() {
		all[name] = scenario.Range(lags.Get(name))
	}
	reply(w, all)
}

func (v *server) postLags(w http.ResponseWriter, r *http.Request) {
	var change lagChange
	if !read(w, r, &change) {
		return
	}
	for name := range change.Set {
		if !slices.Contains(scenario.LagNames(), name) {
			http.Error(w, fmt.Sprintf("set lag %q: want one of %s", name, strings.Join(scenario.LagNames(), ", ")), http.StatusBadRequest)
			return
		}
	}
	v.Model.ChangeLags(func(l *vpc.Lags) {
		if change.Reset {
			*l = v.lags
		}
		for name, lag := range change.Set {
			l.Set(name, vpc.Range(lag))
		}
	})
	v.getLags(w, r)
}
