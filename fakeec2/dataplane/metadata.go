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

// serveMetadata listens on a port of the fabric and lets the metadata server answer there. The socket is bound to the
// port's device: the instance is told by the link that its packets come in by, because a source address tells nothing (pod
// addresses are legal sources too).
func (p *Plane) serveMetadata(f *fabricNet, made *standingPort) error {
	ctx, stop := context.WithCancel(context.Background())
	listener, err := listenOn(ctx, f, made.Name)
	if err != nil {
		stop()
		return err
	}
	made.stop = stop
	instance := made.Instance
	p.serving.Go(func() {
		if err := p.options.Metadata.Serve(ctx, instance, listener); err != nil && !errors.Is(err, context.Canceled) {
			p.options.Log.Error("metadata server ended", "instance", instance, "err", err)
		}
	})
	return nil
}

func listenOn(ctx context.Context, f *fabricNet, device string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var bound error
		err := raw.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), device) })
		return errors.Join(err, bound)
	}}
	config.SetMultipathTCP(false)
	var listener net.Listener
	err := f.ns.Do(func() error {
		var err error
		listener, err = config.Listen(ctx, "tcp4", netip.AddrPortFrom(metadataAddr, metadataPort).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen for metadata on %s: %w", device, err)
	}
	return listener, nil
}
