package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// dialTimeout bounds Dial. A unix connect answers at once unless the listener's backlog is full.
const dialTimeout = 5 * time.Second

// Client is one connection to the daemon, which is one transaction: what was assigned on it and not answered as done is
// given up when it closes. It is not for use by several goroutines.
type Client struct {
	conn    connection
	version int
}

// Dial connects to the daemon's socket within 5 s or ctx's deadline, whichever is sooner.
func Dial(ctx context.Context, path string) (*Client, error) {
	deadline := time.Now().Add(dialTimeout)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(deadline) {
		deadline = sooner
	}
	err := ctx.Err()
	var conn *stream
	if err == nil {
		conn, err = dialStream(path, deadline)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to daemon: %w", err)
	}
	return &Client{conn: conn, version: Version}, nil
}

// Close ends the transaction.
func (c *Client) Close() error { return c.conn.Close() }

// Assign asks for an address. The request's deadline is for the daemon; ctx bounds the wait for its answer and should be a
// little longer.
func (c *Client) Assign(ctx context.Context, message AssignRequest) (PodNetwork, error) {
	var network PodNetwork
	err := c.call(ctx, methodAssign, message, &network)
	return network, err
}

// Done says that the recipe has been carried out. After an error the assignment is not the caller's: undo the kernel work.
func (c *Client) Done(ctx context.Context, message DoneRequest) error {
	return c.call(ctx, methodDone, message, nil)
}

// Release gives an address back; an unknown attachment is no error.
func (c *Client) Release(ctx context.Context, message ReleaseRequest) error {
	return c.call(ctx, methodRelease, message, nil)
}

// Check asks for the recipe that an attachment was built from; *Error with CodeNotAssigned if there is none.
func (c *Client) Check(ctx context.Context, message Attachment) (PodNetwork, error) {
	var network PodNetwork
	err := c.call(ctx, methodCheck, message, &network)
	return network, err
}

// Status asks whether the daemon can serve ADD; *Error with CodeNotAvailable or CodeLimited says why not.
func (c *Client) Status(ctx context.Context) error { return c.call(ctx, methodStatus, nil, nil) }

// GC frees every attachment of a network that is not in the request's list.
func (c *Client) GC(ctx context.Context, message GCRequest) (GCReply, error) {
	var freed GCReply
	err := c.call(ctx, methodGC, message, &freed)
	return freed, err
}

// call makes one request. Where the daemon is one version older it asks again in that version: messages only ever gain
// fields, so the older form is the same bytes under another number.
func (c *Client) call(ctx context.Context, method string, message, into any) error {
	answer, err := c.exchange(ctx, method, message)
	if err != nil {
		return err
	}
	if answer.Error != nil && answer.Error.Code == CodeVersion && answer.Version == c.version-1 && c.version == Version {
		c.version = answer.Version
		if answer, err = c.exchange(ctx, method, message); err != nil {
			return err
		}
	}
	if answer.Error != nil {
		return answer.Error
	}
	if into == nil {
		return nil
	}
	if network, ok := into.(*PodNetwork); ok && plainNetwork(answer.Body, network) {
		return nil
	}
	if err := json.Unmarshal(answer.Body, into); err != nil {
		return fmt.Errorf("decode answer to %s: %w", method, err)
	}
	return nil
}

func (c *Client) exchange(ctx context.Context, method string, message any) (reply, error) {
	var body json.RawMessage
	if message != nil {
		encoded, err := encoded(message)
		if err != nil {
			return reply{}, fmt.Errorf("encode %s: %w", method, err)
		}
		body = encoded
	}
	deadline, _ := ctx.Deadline() // the zero time means none, to SetDeadline too
	if err := c.conn.SetDeadline(deadline); err != nil {
		return reply{}, fmt.Errorf("set deadline of %s: %w", method, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	sent := writeFrame(c.conn, request{Version: &c.version, Method: method, Body: body})
	if sent != nil && !errors.Is(sent, syscall.EPIPE) {
		return reply{}, fmt.Errorf("ask daemon to %s: %w", method, sent)
	}
	frame, err := readFrame(bufio.NewReaderSize(c.conn, firstRead)) // an answer comes alone, so no byte of the next is lost; after EPIPE too: a daemon that refuses a peer says so before it closes
	if err != nil {
		return reply{}, fmt.Errorf("await answer to %s: %w", method, errors.Join(sent, err))
	}
	if answer, plain := plainReply(frame); plain {
		return answer, nil
	}
	var answer reply
	if err := json.Unmarshal(frame, &answer); err != nil {
		return reply{}, fmt.Errorf("decode answer to %s: %w", method, err)
	}
	return answer, nil
}
