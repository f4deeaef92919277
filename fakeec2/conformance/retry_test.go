package conformance

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// eager retries as the SDK does by default, but without waiting.
func eager(o *ec2.Options) {
	o.Retryer = retry.NewStandard(func(s *retry.StandardOptions) {
		s.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

// TestThrottledClientsGetThroughWithTime: a bucket that is empty refuses the client's three attempts, and has tokens again with
// time.
func TestThrottledClientsGetThroughWithTime(t *testing.T) {
	if real() {
		t.Skip("only a fake's bucket can be emptied at will")
	}
	w := newWorld(t, nil)
	w.buckets.Switch(true)
	sent := 0
	for ; code(w.do("AssignPrivateIpAddresses", set("SecondaryPrivateIpAddressCount", "", "PrivateIpAddress.1", "10.0.9.9"))) == "InvalidParameterValue"; sent++ {
		if sent > 200 {
			t.Fatal("never throttled")
		}
	}
	if sent != 100 {
		t.Errorf("%d requests before the bucket was empty, want 100", sent)
	}
	before := len(w.handler.Journal(0))
	if err := w.do("AssignPrivateIpAddresses", eager); code(err) != "RequestLimitExceeded" {
		t.Fatal(err)
	}
	for n, entry := range w.handler.Journal(0)[before:] {
		if entry.Attempt != n+1 || entry.MaxAttempts != 3 || entry.Status != 503 || entry.InvocationID == "" {
			t.Errorf("%+v", entry)
		}
	}
	w.pass(time.Second) // five tokens
	w.must(w.do("AssignPrivateIpAddresses"))
}
