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
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Run watches the namespace's links, IPv4 addresses, routes, rules, switches and our nftables table, and feeds Changes; the
// first value comes as soon as it watches, for all that changed before. It returns nil when ctx ends, and an error when it
// cannot watch. It does not tell its own Apply's changes from others': the Apply that follows finds nothing to do. The pods'
// links and new routes are left out: they come and go with every pod, an Apply for each burst would take its time from the
// ADDs, and nothing of ours depends on them (the audit looks after them). A pod's route that is deleted is another matter: the
// routes of pods that end go with their links, of which the kernel makes no note (fib_table_flush), so one that is noted was
// deleted under a living pod.
func (h *Host) Run(ctx context.Context) error {
	// Both sockets belong to the namespace of this thread.
	routing, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF)
	if err != nil {
		return fmt.Errorf("watch kernel: %w", err)
	}
	defer routing.Close()
	rulesets, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	defer rulesets.Close()

	events := make(chan struct{}, 1)
	signal(events)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { pace(ctx, events, h.changes); return nil })
	group.Go(func() error { return listen(ctx, routing, h.concerns, events) })
	group.Go(func() error { return listen(ctx, rulesets, ofOurTable, events) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("watch kernel: %w", err)
	}
	return nil
}

// listen signals events for messages that concern us, until ctx ends.
func listen(ctx context.Context, socket *nl.NetlinkSocket, concerns func(syscall.NetlinkMessage) bool, events chan<- struct{}) error {
	defer context.AfterFunc(ctx, socket.Close)() // ends a Receive that waits
	for {
		messages, _, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !slices.ContainsFunc(messages, concerns):
		case err == nil, errors.Is(err, unix.ENOBUFS): // more events than the buffer holds: a change all the same
			signal(events)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		default:
			return err
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
	case unix.RTM_NEWNETCONF:
		return oneSwitch(message.Data)
	case unix.RTM_DELNETCONF:
		return false // with its link
	default:
		return true
	}
}

// Attributes of a message about a link's switches (linux/netconf.h). It begins with struct netconfmsg, one byte.
const (
	netconfHeader     = 4 // padded
	netconfForwarding = 2 // NETCONFA_FORWARDING
	netconfRPFilter   = 3 // NETCONFA_RP_FILTER
)

// oneSwitch tells whether somebody has turned forwarding or a reverse path filter. A new link tells of all its switches at
// once, and its message says so itself.
func oneSwitch(data []byte) bool {
	if len(data) < netconfHeader {
		return true
	}
	attrs, err := nl.ParseRouteAttr(data[netconfHeader:])
	if err != nil {
		return true
	}
	return len(attrs) == 2 && slices.ContainsFunc(attrs, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type == netconfForwarding || a.Attr.Type == netconfRPFilter
	})
}

// ofOurTable says whether a message of nftables is about our table: its name is the first attribute of messages of all kinds
// (NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE, NFTA_SET_ELEM_LIST_TABLE). Others' come in thousands.
func ofOurTable(message syscall.NetlinkMessage) bool {
	if message.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN || len(message.Data) < nl.SizeofNfgenmsg {
		return false // ends every transaction, and names no table
	}
	attrs, err := nl.ParseRouteAttr(message.Data[nl.SizeofNfgenmsg:])
	if err != nil {
		return true
	}
	return slices.ContainsFunc(attrs, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type&nl.NLA_TYPE_MASK == unix.NFTA_TABLE_NAME && nl.BytesToString(a.Value) == tableName
	})
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
