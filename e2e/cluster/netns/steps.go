package netns

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// slow is how long a step may take before it is shown while it runs: people start to wonder after two seconds.
const slow = 2 * time.Second

// still is how often a step that runs on is shown again.
const still = 15 * time.Second

// progress shows steps. It is safe for concurrent use.
type progress struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, format, args...) // a screen that went away must not stop the cluster
}

// step runs f. It shows that it runs once it is slow, and how long it took.
func (p *progress) step(ctx context.Context, name string, f func(context.Context) error) error {
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	wait := time.NewTimer(slow)
	defer wait.Stop()
	for {
		select {
		case err := <-ended:
			took := time.Since(began)
			if err != nil {
				p.printf("  FAIL %-42s %6.1f s\n", name, took.Seconds())
				return fmt.Errorf("%s: %w", name, err)
			}
			p.printf("  ok   %-42s %6.1f s\n", name, took.Seconds())
			return nil
		case <-wait.C:
			p.printf("  ...  %-42s %6.1f s so far\n", name, time.Since(began).Seconds())
			wait.Reset(still)
		}
	}
}
