package api

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// connection is what a client needs of its stream.
type connection interface {
	io.ReadWriteCloser
	// SetDeadline bounds the calls that follow, the zero time not; one that has passed ends those that wait.
	SetDeadline(deadline time.Time) error
}

// stream is a unix stream socket that is used by blocking calls. Package net would set up the runtime's poller for it, whose
// thread then wakes for each answer: a fifth of what the plugin's talk with the daemon costs.
type stream struct {
	mu       sync.Mutex // guards what follows, not the calls
	fd       int        // -1: closed
	deadline time.Time
}

// dialStream connects until deadline. A listener whose backlog is full makes it wait.
func dialStream(path string, deadline time.Time) (*stream, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &stream{fd: fd, deadline: deadline}
	err = s.retry(syscall.SO_SNDTIMEO, func() error { return syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}) })
	if err != nil {
		_ = s.Close()
		return nil, os.NewSyscallError("connect", err)
	}
	return s, nil
}

// retry makes a call that option bounds, again when a signal interrupted it.
func (s *stream) retry(option int, call func() error) error {
	for {
		if err := s.bound(option); err != nil {
			return err
		}
		switch err := call(); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return os.ErrDeadlineExceeded
		default:
			return err
		}
	}
}

// bound gives the socket the time that is left. The error is os.ErrDeadlineExceeded when none is.
func (s *stream) bound(option int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var limit syscall.Timeval // zero: for ever
	if !s.deadline.IsZero() {
		left := time.Until(s.deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		limit = syscall.NsecToTimeval((left + time.Microsecond).Nanoseconds())
	}
	return syscall.SetsockoptTimeval(s.fd, syscall.SOL_SOCKET, option, &limit)
}

func (s *stream) Read(into []byte) (n int, err error) {
	err = s.retry(syscall.SO_RCVTIMEO, func() (err error) {
		n, err = syscall.Read(s.fd, into)
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case n == 0 && s.expired():
		return 0, os.ErrDeadlineExceeded
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (s *stream) Write(bytes []byte) (sent int, err error) {
	for sent < len(bytes) {
		var n int
		err := s.retry(syscall.SO_SNDTIMEO, func() (err error) {
			n, err = syscall.SendmsgN(s.fd, bytes[sent:], nil, nil, syscall.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// SetDeadline implements connection. One that has passed shuts the reading side, since nothing else wakes a call that waits.
func (s *stream) SetDeadline(deadline time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = deadline
	if s.fd < 0 {
		return os.ErrClosed
	}
	if !deadline.IsZero() && !deadline.After(time.Now()) {
		return syscall.Shutdown(s.fd, syscall.SHUT_RD)
	}
	return nil
}

func (s *stream) expired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.deadline.IsZero() && !s.deadline.After(time.Now())
}

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return os.ErrClosed
	}
	fd := s.fd
	s.fd = -1
	return syscall.Close(fd)
}
