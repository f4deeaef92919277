package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// State is what the VPC holds, as its operator sees it.
type State struct {
	Instances []vpc.Instance
	Subnets   []vpc.Subnet
	ENIs      []vpc.ENI
	Drops     map[string]uint64 // packets, by reason
}

// Instance gives the instance of a machine or node.
func (s State) Instance(name string) (vpc.Instance, error) {
	for _, i := range s.Instances {
		if i.Name == name {
			return i, nil
		}
	}
	return vpc.Instance{}, fmt.Errorf("there is no instance %q", name)
}

// Attached gives the ENIs of an instance, in the order of their devices.
func (s State) Attached(instance string) []vpc.ENI {
	enis := slices.DeleteFunc(slices.Clone(s.ENIs), func(e vpc.ENI) bool {
		return e.Attachment == nil || e.Attachment.InstanceID != instance
	})
	slices.SortFunc(enis, func(a, b vpc.ENI) int { return a.Attachment.Device - b.Attachment.Device })
	return enis
}

// Request is one EC2 request of the journal.
type Request struct {
	Seq          uint64            `json:"seq"`
	Time         time.Time         `json:"time"`
	Action       string            `json:"action"`
	Params       map[string]string `json:"params"`
	Attempt      int               `json:"attempt"`       // of the SDK's, from 1
	InvocationID string            `json:"invocation_id"` // equal over the attempts of one call
	AccessKey    string            `json:"access_key"`    // an instance's own
	UserAgent    string            `json:"user_agent"`
	Code         string            `json:"code"` // EC2's error code; "" for success
}

// State asks the VPC's operator for all that it holds.
func (c *Cluster) State(ctx context.Context) (State, error) {
	var s State
	return s, c.operate(ctx, "/state", nil, &s)
}

// Journal gives the EC2 requests that ended after the one of that number; 0 gives all.
func (c *Cluster) Journal(ctx context.Context, since uint64) ([]Request, error) {
	var all []Request
	return all, c.operate(ctx, fmt.Sprintf("/journal?since=%d", since), nil, &all)
}

// Spoil adds faults for EC2 requests, in place of those that were there.
func (c *Cluster) Spoil(ctx context.Context, faults ...scenario.Fault) error {
	if faults == nil {
		faults = []scenario.Fault{}
	}
	return c.operate(ctx, "/faults", map[string]any{"clear": true, "add": faults}, nil)
}

// Delay changes how long the VPC's transitions take; what is nil stays.
func (c *Cluster) Delay(ctx context.Context, delays scenario.Delays) error {
	return c.operate(ctx, "/delays", delays, nil)
}

// Operate posts a request of the operator's, such as "/enis/unassign" (see fakeec2).
func (c *Cluster) Operate(ctx context.Context, path string, body any) error {
	return c.operate(ctx, path, body, nil)
}

// operate asks the fake by its operator's socket. A body that is not nil is posted, an answer is read into got unless that is nil.
func (c *Cluster) operate(ctx context.Context, path string, body, got any) error {
	_, socket := c.EC2()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode request %s: %w", path, err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://fakeec2"+path, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("ask the VPC for %s: %w", path, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the VPC for %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask the VPC for %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the VPC for %s: %s: %s", path, response.Status, strings.TrimSpace(string(answer)))
	}
	if got == nil {
		return nil
	}
	if err := json.Unmarshal(answer, got); err != nil {
		return fmt.Errorf("decode answer of the VPC to %s: %w", path, err)
	}
	return nil
}
