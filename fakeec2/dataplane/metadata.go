package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// metadataAddr is where every instance finds its metadata. Source: EC2 user guide.
var metadataAddr = netip.AddrFrom4([4]byte{169, 254, 169, 254})

const metadataPort = 80

// serveMetadata listens on a port of the fabric and lets the metadata server answer there, until the function that it gives is
// called. The socket is bound to the port's device: the instance is told by the link that its packets come in by, because a source
// address tells nothing (pod addresses are legal sources too).
func (p *Plane) serveMetadata(f *fabricNet, made *standingPort, at netip.AddrPort) (context.CancelFunc, error) {
	ctx, stop := context.WithCancel(context.Background())
	listener, err := listenOn(ctx, f, made.Name, at)
	if err != nil {
		stop()
		return nil, err
	}
	instance := made.Instance
	p.serving.Go(func() {
		if err := p.options.Metadata.Serve(ctx, instance, listener); err != nil && !errors.Is(err, context.Canceled) {
			p.options.Log.Error("metadata server ended", "instance", instance, "err", err)
		}
	})
	return func() {
		stop()
		_ = listener.Close() // here and now, so that the next one may listen at once
	}, nil
}

func listenOn(ctx context.Context, f *fabricNet, device string, at netip.AddrPort) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var bound error
		err := raw.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), device) })
		return errors.Join(err, bound)
	}}
	config.SetMultipathTCP(false)
	var listener net.Listener
	err := f.ns.Do(func() error {
		var err error
		listener, err = config.Listen(ctx, "tcp", at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen for metadata on %s: %w", device, err)
	}
	return listener, nil
}
