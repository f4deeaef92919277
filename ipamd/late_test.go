package ipamd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	cnitypes "github.com/containernetworking/cni/pkg/types"

	"github.com/vpc-cni/vpc-cni/cni/podnet"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// another makes a further sandbox of the pod.
func (w *world) another(of, name string) *pod {
	w.t.Helper()
	p := w.sandbox(name)
	p.conf.Args[2][1], p.conf.Args[4][1] = of, "uid-"+of
	return p
}

// ask is the beginning of an ADD, as a plugin that is then held up does it.
func (w *world) ask(p *pod) (*api.Client, api.Attachment, api.PodNetwork) {
	w.t.Helper()
	client, err := api.Dial(w.t.Context(), w.socket())
	w.check(err)
	w.t.Cleanup(func() { _ = client.Close() })
	key := api.Attachment{Network: "aws-cni", ContainerID: p.conf.ContainerID, IfName: "eth0"}
	recipe, err := client.Assign(w.t.Context(), api.AssignRequest{
		Attachment: key, Pod: api.Pod{Namespace: "default", Name: p.conf.Args[2][1], UID: p.conf.Args[4][1]},
		NetNS: p.conf.NetNS, DeadlineMS: patience.Milliseconds(),
	})
	w.check(err)
	return client, key, recipe
}

// The older sandbox's plugin is held up after it was given its address; meanwhile the pod gets a newer sandbox, which runs.
func TestLatePluginOfAnOlderSandboxHarmsNobody(t *testing.T) {
	w := newWorld(t)
	w.start()
	older, newer := w.another("x", "older"), w.another("x", "newer")
	client, key, recipe := w.ask(older)
	w.check(w.tryAdd(newer))
	err := w.node.Do(func() error {
		_, err := podnet.Setup(older.ns.Path(), "eth0", recipe, func() error { _, err := client.Check(t.Context(), key); return err })
		return err
	})
	if !errors.Is(err, podnet.ErrTaken) {
		t.Errorf("its kernel work: %v", err)
	}
	var refused *api.Error
	if err := client.Done(t.Context(), api.DoneRequest{Attachment: key}); !errors.As(err, &refused) || refused.Code != api.CodeTryAgain {
		t.Errorf("its done: %v", err)
	}
	w.check(client.Close())
	w.reaches(newer, ec2Addr+":80")
	w.check(w.cniCheck(newer))
	w.del(older)
	w.reaches(newer, ec2Addr+":80")
}

// The same with kernel work that was done before the newer sandbox came: only done is left to say.
func TestLateDoneOfAnOlderSandboxIsRefused(t *testing.T) {
	w := newWorld(t)
	w.start()
	older, newer := w.another("x", "older"), w.another("x", "newer")
	client, key, recipe := w.ask(older)
	w.check(w.node.Do(func() error {
		_, err := podnet.Setup(older.ns.Path(), "eth0", recipe, func() error { return nil })
		return err
	}))
	w.check(w.tryAdd(newer))
	var refused *api.Error
	if err := client.Done(t.Context(), api.DoneRequest{Attachment: key}); !errors.As(err, &refused) || refused.Code != api.CodeTryAgain {
		t.Errorf("done: %v", err)
	}
	w.reaches(newer, ec2Addr+":80")
}

// An ADD that succeeds at the same time as another sandbox's of its pod has a network, and the other one was told to try again.
func TestOfParallelSandboxesOfAPodTheOneThatSucceedsWorks(t *testing.T) {
	w := newWorld(t, "IP_COOLDOWN_PERIOD=0")
	w.start()
	for range 8 {
		pods := []*pod{w.another("x", "one"), w.another("x", "two")}
		errs := make([]error, 2)
		var adds sync.WaitGroup
		for i, p := range pods {
			adds.Go(func() { errs[i] = w.tryAdd(p) })
		}
		adds.Wait()
		worked := 0
		for i, p := range pods {
			var refused *cnitypes.Error
			switch {
			case errs[i] == nil && w.cniCheck(p) == nil:
				worked++
				w.reaches(p, ec2Addr+":80")
			case errs[i] != nil && (!errors.As(errs[i], &refused) || refused.Code != api.CodeTryAgain):
				t.Errorf("ADD: %v", errs[i])
			}
		}
		if worked != 1 {
			t.Errorf("%d of the two work: %v", worked, errs)
		}
		for _, p := range pods {
			w.del(p)
			w.check(p.ns.Close())
		}
	}
}

// delAs is a DEL whose CNI_NETNS is not the sandbox's.
func (w *world) delAs(p *pod, netns string) error {
	conf := *p.conf
	conf.NetNS = netns
	return w.inNode(func(list *libcni.NetworkConfigList) error {
		return w.runtime.DelNetworkList(context.Background(), list, &conf)
	})
}

func TestAddressOfAVethThatStandsGoesToNoOtherPod(t *testing.T) {
	w := newWorld(t, "IP_COOLDOWN_PERIOD=0", "MAX_ENI=1")
	w.start()
	p, other := w.add("a"), w.add("b")
	for name, netns := range map[string]string{"no namespace": "", "the host's": w.node.Path(), "no file of a namespace": "/dev/null"} {
		if err := w.delAs(p, netns); err != nil {
			t.Errorf("DEL with %s: %v", name, err)
		}
	}
	if refused := w.assign("c"); refused == nil || refused.Code != api.CodeTryAgain {
		t.Errorf("ADD while the veth stands: %v", refused)
	}
	w.reaches(other, ec2Addr+":80")
}

// The deletion of a superseded sandbox that found no daemon is carried out at the next start, before the first audit.
func TestRecordedDeletionOfASupersededSandboxIsCarriedOut(t *testing.T) {
	w := newWorld(t)
	w.start()
	older, newer := w.another("x", "older"), w.another("x", "newer")
	w.check(w.tryAdd(older))
	w.check(w.tryAdd(newer))
	w.kill()
	w.del(older)
	records := func() int {
		found, err := api.CollectPending(w.socket())
		w.check(err)
		return len(found)
	}
	if n := records(); n != 1 {
		t.Fatalf("%d recorded deletions, want 1", n)
	}
	began := time.Now()
	w.start()
	w.await("the record is gone", func() bool { return records() == 0 })
	if took := time.Since(began); took > 20*time.Second { // the audits are 30 s apart
		t.Errorf("carried out after %s", took)
	}
	w.reaches(newer, ec2Addr+":80")
	w.check(w.cniCheck(newer))
}
