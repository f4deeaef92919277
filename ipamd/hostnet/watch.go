package hostnet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Run watches the namespace's links, IPv4 addresses, routes and rules, and feeds Changes; the first value comes as soon as it
// watches, for all that changed before. It returns nil when ctx ends, and an error when it cannot watch. It does not tell its
// own Apply's changes from others': the Apply that follows finds nothing to do. The pods' links and new routes are left out:
// they come and go with every pod, an Apply for each burst would take its time from the ADDs, and nothing of ours depends on
// them (the audit looks after them). A pod's route that is deleted is another matter: the routes of pods that end go with their
// links, of which the kernel makes no note (fib_table_flush), so one that is noted was deleted under a living pod.
func (h *Host) Run(ctx context.Context) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE)
	if err != nil {
		return fmt.Errorf("watch kernel: %w", err)
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, socket.Close)() // ends a Receive that waits

	events := make(chan struct{}, 1)
	pacing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pace(pacing, events, h.changes)
	}()
	defer func() { stop(); <-ended }()
	signal(events)
	for {
		messages, _, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !slices.ContainsFunc(messages, h.concerns):
		case err == nil, errors.Is(err, unix.ENOBUFS): // more events than the buffer holds: a change all the same
			signal(events)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		default:
			return fmt.Errorf("watch kernel: %w", err)
		}
	}
}

// concerns says whether a message of the kernel is about more than a pod's link or a pod's new route. What cannot be read
// concerns.
func (h *Host) concerns(message syscall.NetlinkMessage) bool {
	switch message.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		link, err := netlink.LinkDeserialize(nil, message.Data)
		return err != nil || !strings.HasPrefix(link.Attrs().Name, h.cfg.VethPrefix)
	case unix.RTM_NEWROUTE:
		return routeTable(message.Data) != tablePods
	default:
		return true
	}
}

// routeTable reads the table of a route message; 0 where there is none.
func routeTable(data []byte) int {
	if len(data) < unix.SizeofRtMsg {
		return 0
	}
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofRtMsg:])
	if err != nil {
		return 0
	}
	for _, attr := range attrs {
		if attr.Attr.Type == unix.RTA_TABLE && len(attr.Value) == 4 {
			return int(nl.NativeEndian().Uint32(attr.Value))
		}
	}
	return 0
}

// pace passes events on: the first at once, more not before changesInterval has passed.
func pace(ctx context.Context, events <-chan struct{}, out chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			signal(out)
		}
		rest := time.NewTimer(changesInterval)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// signal leaves a note unless one is there already.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
