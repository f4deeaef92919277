package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// retryAfter is how long Run waits after the kernel refused something. It is long against a Sync (milliseconds) and short
// against what a test waits for.
const retryAfter = 200 * time.Millisecond

// Image is what a node's machine image brings along.
type Image struct {
	// RPFilter is the image's setting of rp_filter on all, default and every link: 0 off, 1 strict, 2 loose. New
	// namespaces start with 0, which hides every bug that strict images show.
	RPFilter int
}

// Metadata serves instance metadata on one ENI's port. It returns when ctx ends; it owns the listener.
type Metadata interface {
	Serve(ctx context.Context, instance string, listener net.Listener) error
}

// Options of a Plane.
type Options struct {
	Dir string // namespaces are bound at <Dir>/netns/<name>: fabric-<VPC id>, and the names of instances, services, outside hosts
	// Image tells the image of an instance; nil gives every one rp_filter 1.
	Image    func(vpc.Instance) Image
	Metadata Metadata // nil: nobody answers at 169.254.169.254
	Host     string   // path of the namespace that adopted links have their other ends in; "" is the program's own
	Log      *slog.Logger
}

// Plane follows one model. Run keeps it following; Sync does one step at once.
type Plane struct {
	model   *vpc.VPC
	options Options
	serving sync.WaitGroup // metadata servers

	mu      sync.Mutex
	synced  uint64                // number of the model's last change that is true in the kernel
	guests  map[string]*guestNS   // by path
	fabrics map[string]*fabricNet // by VPC id
	hostNS  *netlab.Namespace     // opened at the first adoption
	noVLANs bool                  // the kernel has none
}

// New makes a plane that stands for nothing yet: the first Sync builds the world.
func New(model *vpc.VPC, options Options) *Plane {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	return &Plane{model: model, options: options, guests: map[string]*guestNS{}, fabrics: map[string]*fabricNet{}}
}

func (p *Plane) image(i vpc.Instance) Image {
	if p.options.Image == nil {
		return Image{RPFilter: 1}
	}
	return p.options.Image(i)
}

// Run follows the model until ctx ends. It leaves the world standing: see Close.
func (p *Plane) Run(ctx context.Context) error {
	for {
		changed := p.model.Changed() // before the state is read, so that no change is missed
		var retry <-chan time.Time
		if err := p.Sync(); err != nil {
			p.options.Log.Error("data plane is behind its model", "err", err)
			retry = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-retry:
		}
	}
}

// Sync brings the kernel to what the model says now. It changes only what differs from its last result (drift that others
// cause is not looked for), and it is safe to call beside Run: when it returns nil, every change made before the call is true
// in the kernel. After an error the rest stands, and the next Sync tries again.
func (p *Plane) Sync() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Read under the lock, so that an older reading does not overtake a newer one.
	if _, seq := p.model.Events(math.MaxUint64); seq == p.synced {
		return nil
	}
	read := readModel(p.model)
	want, err := p.want(read)
	if err != nil {
		return fmt.Errorf("read the model: %w", err)
	}
	var errs []error
	for id, f := range p.fabrics {
		w := want.fabrics[id] // of a VPC that is gone: nothing
		errs = append(errs, f.prune(w))
	}
	for path, g := range p.guests {
		if _, wanted := want.guests[path]; !wanted {
			errs = append(errs, g.close())
			delete(p.guests, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(want.guests)) {
		errs = append(errs, p.openGuest(want.guests[path]))
	}
	for _, id := range slices.Sorted(maps.Keys(want.fabrics)) {
		errs = append(errs, p.syncFabric(id, want.fabrics[id]))
	}
	for _, x := range want.peerings {
		errs = append(errs, p.peer(x))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.synced = read.Seq
	return nil
}

func (p *Plane) syncFabric(id string, want fabric) error {
	f := p.fabrics[id]
	if f == nil {
		var err error
		if f, err = newFabric(want.Path); err != nil {
			return fmt.Errorf("make fabric of %s: %w", id, err)
		}
		if err := p.serveReserved(f, want.CIDRs); err != nil {
			return errors.Join(err, f.close())
		}
		p.fabrics[id] = f
	}
	if err := p.extend(f, want); err != nil {
		return fmt.Errorf("extend fabric of %s: %w", id, err)
	}
	return nil
}

// Counters gives the packets dropped so far, by reason (see the Drop constants). Reasons that never happened are there too.
func (p *Plane) Counters() (map[string]uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := map[string]uint64{}
	for id, f := range p.fabrics {
		for _, r := range f.rules {
			if err := r.count(total); err != nil {
				return nil, fmt.Errorf("read drop counters of %s: %w", id, err)
			}
		}
		if err := f.tags.count(total); err != nil {
			return nil, fmt.Errorf("read drop counters of %s: %w", id, err)
		}
	}
	return total, nil
}

// Close takes down all that the plane made and waits for its metadata servers.
func (p *Plane) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for id, f := range p.fabrics {
		errs = append(errs, f.close())
		delete(p.fabrics, id)
	}
	for path, g := range p.guests {
		errs = append(errs, g.close())
		delete(p.guests, path)
	}
	if p.hostNS != nil {
		errs = append(errs, p.hostNS.Close())
		p.hostNS = nil
	}
	p.serving.Wait()
	return errors.Join(errs...)
}

// Namespaces gives the path of each guest's namespace, by the name of the instance (its id, if it has no name), service or
// outside host.
func (p *Plane) Namespaces() map[string]string {
	paths := map[string]string{}
	for _, i := range p.model.Instances() {
		if hasGuest(i) {
			paths[cmp.Or(i.Name, i.ID)] = p.instancePath(i)
		}
	}
	for _, s := range p.model.Services() {
		paths[s.Name] = p.ServicePath(s)
	}
	for _, o := range p.model.Outsides() {
		paths[o.Name] = p.outsidePath(o)
	}
	return paths
}
