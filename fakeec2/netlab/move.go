package netlab

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// ErrNoPeer says that the other end of a link is not where it was looked for.
var ErrNoPeer = errors.New("other end not found")

// Peer finds the other end of a veth in another namespace and gives its name. The two ends must name each other.
func Peer(n *Namespace, link string, other *Namespace) (string, error) {
	near, index, err := n.onLink(link)
	if err != nil {
		return "", err
	}
	found, err := near.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("read link %s in %s: %w", link, n.path, err)
	}
	far, err := other.route()
	if err != nil {
		return "", err
	}
	peer, err := far.LinkByIndex(found.Attrs().ParentIndex)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); err != nil && !gone {
		return "", fmt.Errorf("read links of %s: %w", other.path, err)
	}
	if err != nil || found.Type() != "veth" || peer.Type() != "veth" || peer.Attrs().ParentIndex != index {
		return "", fmt.Errorf("look for the other end of %s of %s in %s: %w", link, n.path, other.path, ErrNoPeer)
	}
	return peer.Attrs().Name, nil
}

// Seat is what a link is in its place, apart from addresses and routes.
type Seat struct {
	Name   string
	MAC    net.HardwareAddr // nil leaves it
	MTU    int              // 0 leaves it
	Bridge string           // "" for none
	Down   bool
}

// SeatOf reads a link's seat.
func SeatOf(n *Namespace, name string) (Seat, error) {
	h, index, err := n.onLink(name)
	if err != nil {
		return Seat{}, err
	}
	link, err := h.LinkByIndex(index)
	if err != nil {
		return Seat{}, fmt.Errorf("read link %s in %s: %w", name, n.path, err)
	}
	a := link.Attrs()
	seat := Seat{Name: a.Name, MAC: a.HardwareAddr, MTU: a.MTU, Down: a.Flags&net.FlagUp == 0}
	if a.MasterIndex != 0 {
		bridge, err := h.LinkByIndex(a.MasterIndex)
		if err != nil {
			return Seat{}, fmt.Errorf("read bridge of %s in %s: %w", name, n.path, err)
		}
		seat.Bridge = bridge.Attrs().Name
	}
	return seat, nil
}

// Move moves a link into another namespace and seats it there. Links are made where they live, with this one exception: the
// end of a veth that somebody else made. Its addresses and routes are lost, as the kernel does it.
func Move(from *Namespace, name string, to *Namespace, seat Seat) error {
	if err := move(from, name, to); err != nil {
		return fmt.Errorf("move link %s from %s to %s: %w", name, from.path, to.path, err)
	}
	if err := seat.take(to, name); err != nil {
		return fmt.Errorf("seat link %s as %s in %s: %w", name, seat.Name, to.path, err)
	}
	return nil
}

// Reseat seats a link in its own namespace.
func Reseat(n *Namespace, name string, seat Seat) error {
	if err := seat.take(n, name); err != nil {
		return fmt.Errorf("seat link %s as %s in %s: %w", name, seat.Name, n.path, err)
	}
	return nil
}

func move(from *Namespace, name string, to *Namespace) error {
	h, index, err := from.onLink(name)
	if err != nil {
		return err
	}
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, Name: name}}
	// Down first: it must be so to be renamed, and a bridge must not see it with another name.
	return errors.Join(h.LinkSetDown(link), h.LinkSetNoMaster(link), h.LinkSetNsFd(link, to.FD()))
}

func (s Seat) take(n *Namespace, name string) error {
	h, index, err := n.onLink(name)
	if err != nil {
		return err
	}
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, Name: name}}
	if s.Name != name {
		if err := h.LinkSetName(link, s.Name); err != nil {
			return fmt.Errorf("rename: %w", err)
		}
	}
	if s.MAC != nil {
		err = h.LinkSetHardwareAddr(link, s.MAC)
	}
	if err == nil && s.MTU != 0 {
		err = h.LinkSetMTU(link, s.MTU)
	}
	if err == nil && s.Bridge != "" {
		var bridge netlink.Link
		if bridge, err = h.LinkByName(s.Bridge); err == nil {
			err = h.LinkSetMaster(link, bridge)
		}
	}
	if err == nil && !s.Down {
		err = h.LinkSetUp(link)
	}
	return err
}
