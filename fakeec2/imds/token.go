package imds

import (
	"encoding/base64"
	"fmt"
	"io"
	"sync"
	"time"
)

// Headers of version 2. Source: EC2 user guide, "Use the Instance Metadata Service".
const (
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
)

const (
	maxTokenSeconds = 21600 // six hours; source: EC2 user guide
	tokenBytes      = 40    // gives the 56 characters of a real token
)

// tokens are the session tokens of all instances.
type tokens struct {
	random io.Reader

	mu     sync.Mutex
	issued map[string]grant
}

// grant says on which instance a token is good, and until when.
type grant struct {
	instance string
	until    time.Time
}

func (t *tokens) issue(instance string, now time.Time, ttl time.Duration) (string, error) {
	raw := make([]byte, tokenBytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := io.ReadFull(t.random, raw); err != nil {
		return "", fmt.Errorf("draw token: %w", err)
	}
	for token, g := range t.issued {
		if !g.until.After(now) {
			delete(t.issued, token)
		}
	}
	token := base64.URLEncoding.EncodeToString(raw)
	t.issued[token] = grant{instance: instance, until: now.Add(ttl)}
	return token, nil
}

// valid tells whether a token was issued to this instance and has not expired.
func (t *tokens) valid(token, instance string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, known := t.issued[token]
	return known && g.instance == instance && g.until.After(now)
}
