package ipamd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// soon is within what a runtime's pod start may take, and well below an audit's 30 s: what waits for one has not happened.
const soon = 8 * time.Second

// newStateWorld is a world whose daemon may read the runtime's results, or may not.
func newStateWorld(t *testing.T, results bool, settings ...string) *world {
	t.Helper()
	w := newWorld(t, settings...)
	folder := filepath.Join(w.dir, "nowhere")
	if results {
		folder = filepath.Join(w.dir, "cache")
	}
	w.env = append(w.env, "HOST_CNI_CACHE_PATH="+folder)
	return w
}

func (w *world) stateDir() string  { return filepath.Join(w.dir, "state") }
func (w *world) statePath() string { return filepath.Join(w.stateDir(), "state.json") }

func (w *world) logText() string {
	w.t.Helper()
	text, err := os.ReadFile(w.log.Name())
	w.check(err)
	return string(text)
}

// logged tells whether a line of the daemon's log has all the words.
func (w *world) logged(words ...string) bool {
	w.t.Helper()
line:
	for line := range strings.Lines(w.logText()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue line
			}
		}
		return true
	}
	return false
}

// shows waits until a page has the text.
func (w *world) shows(socket, path, text string) {
	w.t.Helper()
	w.await(path+" shows "+text, func() bool { return strings.Contains(w.page(socket, path), text) })
}

// assigned waits until n addresses are pods'.
func (w *world) assigned(n string) {
	w.t.Helper()
	w.shows("metrics.sock", "/metrics", "awscni_assigned_ip_addresses "+n+"\n")
}

// audits is the longest time that two audits take, the first of which was at the daemon's start.
const audits = 45 * time.Second

// audited waits for what ends by the evidence of two audits: until nothing is left to say.
func (w *world) audited(what string, left func() string) {
	w.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(audits); ; <-tick.C {
		text := left()
		if text == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %s: %s", what, audits, text)
		}
	}
}

// within fails the test if f takes longer.
func (w *world) within(limit time.Duration, what string, f func()) {
	w.t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > limit {
		w.t.Errorf("%s took %s, at most %s is right", what, took, limit)
	}
}

// addSoon adds a pod, which has to get an address that none of the others has, without delay.
func (w *world) addSoon(name string, others ...*pod) *pod {
	w.t.Helper()
	var p *pod
	w.within(soon, "ADD "+name, func() { p = w.add(name) })
	for _, other := range others {
		if p.addr == other.addr {
			w.t.Errorf("%s of %s is given to %s too", p.addr, other.conf.ContainerID, name)
		}
	}
	w.reaches(p, ec2Addr+":80")
	return p
}

// live fails the test unless the pods talk and, where the daemon knows them, pass CHECK.
func (w *world) live(pods ...*pod) {
	w.t.Helper()
	for _, p := range pods {
		w.reaches(p, ec2Addr+":80")
		if err := w.cniCheck(p); err != nil {
			w.t.Errorf("CHECK %s: %v", p.conf.ContainerID, err)
		}
	}
}

// code is the code of a CNI error; 0 for none.
func code(err error) uint {
	var refused *cnitypes.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return 0
}

// gc calls GC with the pods that the runtime knows.
func (w *world) gc(valid ...*pod) error {
	var list []cnitypes.GCAttachment
	for _, p := range valid {
		list = append(list, cnitypes.GCAttachment{ContainerID: p.conf.ContainerID, IfName: p.conf.IfName})
	}
	client, err := api.Dial(context.Background(), w.socket())
	if err != nil {
		return err
	}
	defer client.Close()
	request := api.GCRequest{Network: "aws-cni"}
	for _, entry := range list {
		request.Valid = append(request.Valid, api.Attachment{Network: "aws-cni", ContainerID: entry.ContainerID, IfName: entry.IfName})
	}
	_, err = client.GC(context.Background(), request)
	return err
}

// forget is a runtime that was killed before it wrote down the result of its ADD: nothing of the pod is in its cache.
func (w *world) forget(p *pod) {
	w.t.Helper()
	w.check(os.Remove(filepath.Join(w.dir, "cache", "results", "aws-cni-"+p.conf.ContainerID+"-eth0")))
}

// statusCode is STATUS as the plugin says it.
func (w *world) statusCode() uint {
	var refused *api.Error
	if errors.As(w.status(), &refused) {
		return refused.Code
	}
	return 0
}
