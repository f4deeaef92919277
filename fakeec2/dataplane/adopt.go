package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
)

// adoption is what it takes to give an adopted link back as it was found. It lies in a file while the link is adopted, so that
// a program that was killed does not take a container's link with it.
type adoption struct {
	Fabric, Host, Guest string // paths of namespaces; Host is "" for the program's own
	Port                string // the link's name in the fabric
	Seat                netlab.Seat
	Before              guestLinkState
}

// adoptions is the folder of those files.
func adoptions(dir string) string { return filepath.Join(dir, "adopted") }

func (p *Plane) adoptionFile(port string) string {
	return filepath.Join(adoptions(p.options.Dir), port+".json")
}

// Inspect tells what adopting a link would make the primary ENI: its MAC and its first IPv4 address.
func Inspect(namespace, link string) (mac string, addr netip.Addr, err error) {
	ns, err := netlab.Open(namespace)
	if err != nil {
		return "", netip.Addr{}, err
	}
	defer ns.Close()
	seat, err := netlab.SeatOf(ns, link)
	if err != nil {
		return "", netip.Addr{}, err
	}
	state, err := readGuestLink(ns, link)
	if err != nil {
		return "", netip.Addr{}, err
	}
	if len(state.Addrs) == 0 {
		return "", netip.Addr{}, fmt.Errorf("look at link %s in %s: it has no IPv4 address", link, namespace)
	}
	return seat.MAC.String(), state.Addrs[0].Addr(), nil
}

// adopt takes an existing link for a port: the end that is not in the guest moves into the fabric.
func (p *Plane) adopt(f *fabricNet, g *guestNS, next port) error {
	host, err := p.host()
	if err != nil {
		return err
	}
	mac, addr, err := Inspect(g.Path, next.Link)
	if err != nil {
		return err
	}
	if mac != next.MAC || addr != next.Primary {
		return fmt.Errorf("adopt %s of %s: it is %s with %s, and the ENI is %s with %s", next.Link, g.Path, mac, addr, next.MAC, next.Primary)
	}
	outer, err := netlab.Peer(g.ns, next.Link, host)
	if err != nil {
		return err
	}
	a := adoption{Fabric: f.ns.Path(), Host: p.options.Host, Guest: g.Path, Port: next.Name}
	if a.Seat, err = netlab.SeatOf(host, outer); err != nil {
		return err
	}
	if a.Before, err = readGuestLink(g.ns, next.Link); err != nil {
		return err
	}
	if err := a.save(p.adoptionFile(next.Name)); err != nil {
		return err
	}
	err = netlab.Move(host, outer, f.ns, netlab.Seat{Name: next.Name, MAC: next.fabricMAC(), MTU: next.MTU})
	if err == nil {
		err = a.Before.become(g.ns, next)
	}
	if err != nil {
		return errors.Join(err, giveBack(p.adoptionFile(next.Name)))
	}
	return nil
}

// host is where links to adopt have their other ends.
func (p *Plane) host() (*netlab.Namespace, error) {
	if p.hostNS == nil {
		var err error
		if p.hostNS, err = openHost(p.options.Host); err != nil {
			return nil, fmt.Errorf("open the namespace of adopted links: %w", err)
		}
	}
	return p.hostNS, nil
}

func openHost(path string) (*netlab.Namespace, error) {
	if path == "" {
		return netlab.Current()
	}
	return netlab.Open(path)
}

func (a adoption) save(path string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("note adoption: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("note adoption: %w", err)
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("note adoption: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("note adoption: %w", err)
	}
	return nil
}

// GiveBack gives back the links that a plane in this folder had adopted when its program was killed. It must come before the
// fabrics' namespaces are removed, because links end with them.
func GiveBack(dir string) error {
	files, err := filepath.Glob(filepath.Join(adoptions(dir), "*.json"))
	if err != nil {
		return fmt.Errorf("look for adopted links in %s: %w", dir, err)
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, giveBack(file))
	}
	return errors.Join(errs...)
}

// giveBack does what a file says and removes it. What has gone in the meantime (a container was removed) needs nothing.
func giveBack(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var a adoption
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return fmt.Errorf("read adoption: %w", err)
	}
	if err := a.undo(); err != nil {
		return fmt.Errorf("give back %s: %w", a.Seat.Name, err)
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("forget adoption: %w", err)
	}
	_ = os.Remove(filepath.Dir(file)) // succeeds when it was the last
	return nil
}

func (a adoption) undo() error {
	host, err := openHost(a.Host)
	if err != nil {
		return err
	}
	defer host.Close()
	fabric, err := netlab.Open(a.Fabric)
	if err != nil {
		return nil // the fabric is gone, and the link with it
	}
	defer fabric.Close()
	name := a.Port
	if _, err := netlab.SeatOf(fabric, name); err != nil {
		name = a.Seat.Name // killed before it was renamed, or even moved
	}
	if _, err := netlab.SeatOf(fabric, name); err != nil {
		return gone(netlab.Reseat(host, name, a.Seat))
	}
	guest, err := netlab.Open(a.Guest)
	if err != nil {
		return gone(netlab.DelLink(fabric, name)) // a container that ended; its link leads nowhere
	}
	defer guest.Close()
	if peer, err := netlab.Peer(guest, a.Before.Link, fabric); err != nil || peer != name {
		return gone(netlab.DelLink(fabric, name)) // the path leads to a namespace that came later
	}
	if err := a.Before.restore(guest); err != nil {
		return err
	}
	return netlab.Move(fabric, name, host, a.Seat)
}

// gone takes a link that is not there for removed.
func gone(err error) error {
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil
	}
	return err
}
