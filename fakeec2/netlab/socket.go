package netlab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// Listen listens on a socket made in the namespace. The address must be literal: a name would be looked up elsewhere.
func (n *Namespace) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("listen in namespace %s: %w", n.path, err)
	}
	var listener net.Listener
	err := n.Do(func() error {
		config := net.ListenConfig{}
		config.SetMultipathTCP(false)
		var err error
		listener, err = config.Listen(ctx, network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in namespace %s: %w", n.path, err)
	}
	return listener, nil
}

// DialContext connects from a socket made in the namespace. It has the form of http.Transport's DialContext. The address
// must be literal: the dialer looks up names, and tries several addresses, on other threads.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from namespace %s: %w", n.path, err)
	}
	var conn net.Conn
	err := n.Do(func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial from namespace %s: %w", n.path, err)
	}
	return conn, nil
}
