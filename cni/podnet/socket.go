package podnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// answerTimeout bounds a wait for the kernel, in seconds. It answers a request before the call that sends it returns, so
// that only a fault can make it last.
const answerTimeout = 60

// answerSize is room for the largest answer, in bytes: a link with all its attributes has 2 kB.
const answerSize = 16 << 10

// socket is an rtnetlink socket in one namespace, used without the runtime's poller: each message would wake a second thread
// of the process.
type socket struct {
	fd     int
	answer []byte
}

// openSocket makes a socket in the calling thread's namespace.
func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bound the wait for rtnetlink: %w", err)
	}
	return &socket{fd: fd, answer: make([]byte, answerSize)}, nil
}

// openSocketIn makes a socket in the namespace there; here is the calling thread's own.
func openSocketIn(there, here int) (s *socket, err error) {
	runtime.LockOSThread()
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EINVAL) { // a namespace of another kind, or a file of /proc
			err = errNoNamespace
		}
		return nil, fmt.Errorf("enter namespace: %w", err)
	}
	s, err = openSocket()
	if back := unix.Setns(here, unix.CLONE_NEWNET); back != nil {
		return nil, errors.Join(err, fmt.Errorf("return to own namespace: %w", back)) // the thread stays locked: nobody else may run on it
	}
	runtime.UnlockOSThread()
	return s, err
}

func (s *socket) close() {
	if s != nil {
		_ = unix.Close(s.fd)
	}
}

// refusal is a request that the kernel did not carry out.
type refusal struct {
	place int // in its batch
	text  string
	errno unix.Errno
}

func (r *refusal) Error() string { return r.text + ": " + r.errno.Error() }
func (r *refusal) Unwrap() error { return r.errno }

// do has the kernel carry out a batch and returns what it answered to the last request: nothing, or the object that was
// asked for. The error is the first *refusal; the requests after it were carried out all the same.
func (s *socket) do(b *batch) (answer []byte, err error) {
	if kind := binary.NativeEndian.Uint16(b.bytes[b.begun+4:]); kind != unix.RTM_GETLINK { // which answers by itself
		flags := b.bytes[b.begun+6:]
		binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	}
	if err := unix.Send(s.fd, b.bytes, 0); err != nil {
		return nil, fmt.Errorf("send to rtnetlink: %w", err)
	}
	var first *refusal
	for {
		n, _, err := unix.Recvfrom(s.fd, s.answer, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("read from rtnetlink: %w", err)
		case n < unix.SizeofNlMsghdr || n > len(s.answer):
			return nil, fmt.Errorf("read from rtnetlink: %d bytes do not make an answer", n)
		}
		place := int(binary.NativeEndian.Uint32(s.answer[8:]))
		body := s.answer[unix.SizeofNlMsghdr:n]
		if place >= len(b.texts) {
			return nil, fmt.Errorf("read from rtnetlink: an answer to request %d of %d", place, len(b.texts))
		}
		if binary.NativeEndian.Uint16(s.answer[4:]) == unix.NLMSG_ERROR && len(body) >= 4 {
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			body = nil
			if errno != 0 && first == nil {
				first = &refusal{place, b.texts[place], errno}
			}
		}
		if place < len(b.texts)-1 {
			continue
		}
		if first != nil {
			return nil, first
		}
		return body, nil
	}
}

// carryOut is do for a batch that asks for nothing.
func (s *socket) carryOut(b *batch) error {
	_, err := s.do(b)
	return err
}

// linkState is what is asked of a link.
type linkState struct {
	index, parent int
	kind          string // "veth"
	operState     byte
}

// link reads a link by its index, or by its name where that is 0. ENODEV: there is none.
func (s *socket) link(name string, index int) (linkState, error) {
	b := newBatch()
	b.getLink(name, index)
	answer, err := s.do(b)
	if err != nil {
		return linkState{}, err
	}
	if len(answer) < unix.SizeofIfInfomsg {
		return linkState{}, fmt.Errorf("read link %s: %d bytes do not make a link", name, len(answer))
	}
	found := linkState{index: int(int32(binary.NativeEndian.Uint32(answer[4:])))}
	eachAttribute(answer[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		switch {
		case kind == unix.IFLA_LINK && len(value) == 4:
			found.parent = int(int32(binary.NativeEndian.Uint32(value)))
		case kind == unix.IFLA_OPERSTATE && len(value) == 1:
			found.operState = value[0]
		case kind == unix.IFLA_LINKINFO:
			eachAttribute(value, func(kind uint16, value []byte) {
				if kind == unix.IFLA_INFO_KIND {
					found.kind = unix.ByteSliceToString(value)
				}
			})
		}
	})
	return found, nil
}

// remove deletes a link. ENODEV: there is none.
func (s *socket) remove(index int) error {
	b := newBatch()
	b.delLink(index)
	return s.carryOut(b)
}

// eachAttribute walks over attributes; what is cut off ends the walk.
func eachAttribute(bytes []byte, f func(kind uint16, value []byte)) {
	for len(bytes) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(bytes))
		if size < unix.SizeofRtAttr || size > len(bytes) {
			return
		}
		f(binary.NativeEndian.Uint16(bytes[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), bytes[unix.SizeofRtAttr:size])
		bytes = bytes[min(len(bytes), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
}
