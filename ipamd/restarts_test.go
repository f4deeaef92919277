package ipamd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// churn is pods that come and go while the daemon is restarted.
type churn struct {
	*world
	mu      sync.Mutex
	holders map[netip.Addr]string // by address: the sandbox between the end of its ADD and the beginning of its DEL
	worked  int
	retried int
}

// B11. The daemon is restarted every few hundred milliseconds, killed or told to end, while pods come and go: each DEL frees the
// address that its ADD returned, no address is on two sandboxes, and a pod that runs all the time notices nothing.
func TestB11EachDELFreesTheAddressOfItsADDWhateverRestarts(t *testing.T) {
	t.Parallel()
	const workers, lasting = 4, 6 * time.Second
	w := newWorldOf(t, vpc.InstanceType{Name: "wide", ENIs: 4, IPv4: 15}, "WARM_IP_TARGET=8", "IP_COOLDOWN_PERIOD=0")
	w.start()
	kept := w.add("kept")
	stop := w.pingAll(kept)
	c := &churn{world: w, holders: map[netip.Addr]string{kept.addr: "kept"}}
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c.once(fmt.Sprintf("w%d-%d", worker, i))
			}
		})
	}
	restarts := 0
	rng := rand.New(rand.NewPCG(11, 2352))
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(150+rng.IntN(350)) * time.Millisecond):
		}
		_ = w.end([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[restarts%2])
		w.launch()
		restarts++
	}
	running.Wait()
	t.Logf("%d pods came and went, %d ADDs were to be tried again, %d restarts", c.worked, c.retried, restarts)
	if c.worked < 2*restarts {
		t.Error("hardly a pod was there between two restarts")
	}
	_ = w.end(syscall.SIGTERM)
	w.start()
	w.within(soon, "the end of all that went", func() { w.assigned("1") })
	w.live(kept)
	if text := w.run("ip", "-br", "link") + w.run("ip", "route", "show", "table", "7000"); strings.Count(text, "eni") != 2 {
		t.Errorf("the kernel holds more than one pod:\n%s", text)
	}
	if records, err := api.CollectPending(w.socket()); err != nil || len(records) != 0 {
		t.Errorf("recorded deletions: %v, %v", records, err)
	}
	if lost, sent := stop(); lost > 0 || sent == 0 {
		t.Errorf("%d of %d pings were not answered", lost, sent)
	}
}

// once is the life of one pod.
func (c *churn) once(name string) {
	p := c.sandbox(name)
	defer func() { _ = p.ns.Close() }()
	if err := c.tryAdd(p); err != nil {
		if code(err) != api.CodeTryAgain {
			c.t.Errorf("ADD: code %d: %v", code(err), err)
		}
		c.note(func() { c.retried++ })
		c.delete(p)
		return
	}
	c.note(func() {
		if other := c.holders[p.addr]; other != "" {
			c.t.Errorf("%s is given to %s and to %s", p.addr, other, name)
		}
		c.holders[p.addr] = name
		c.worked++
	})
	if addr, err := c.recorded(p); err == nil && addr != p.addr {
		c.t.Errorf("%s has %s, and the daemon knows it by %s", name, p.addr, addr)
	}
	c.note(func() { delete(c.holders, p.addr) })
	c.delete(p)
	if addr, err := c.recorded(p); err == nil {
		c.t.Errorf("%s still has %s after its DEL", name, addr)
	}
}

func (c *churn) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *churn) delete(p *pod) {
	err := c.inNode(func(list *libcni.NetworkConfigList) error {
		return c.runtime.DelNetworkList(context.Background(), list, p.conf)
	})
	if err != nil {
		c.t.Errorf("DEL: %v", err)
	}
}

// errSilent says that no daemon answered, or that the deletion is still to be collected.
var errSilent = errors.New("no daemon answered")

// recorded is the address that the daemon knows the sandbox by.
func (c *churn) recorded(p *pod) (netip.Addr, error) {
	records, err := api.CollectPending(c.socket())
	if err != nil || len(records) > 0 {
		return netip.Addr{}, errSilent
	}
	client, err := api.Dial(context.Background(), c.socket())
	if err != nil {
		return netip.Addr{}, errSilent
	}
	defer client.Close()
	recipe, err := client.Check(context.Background(), api.Attachment{Network: "aws-cni", ContainerID: p.conf.ContainerID, IfName: "eth0"})
	return recipe.Addr.Addr(), err
}
