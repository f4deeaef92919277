package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vpc-cni/vpc-cni/e2e/event"
)

// Order is what a test may ask of an agent about one pod, which it names by UID: names come back, UIDs do not.
type Order string

// The orders.
const (
	HoldDEL    Order = "hold-del"    // the DEL of this pod waits until ReleaseDEL
	ReleaseDEL Order = "release-del" // a held DEL goes on
	SkipDEL    Order = "skip-del"    // the DEL of this pod is never sent, as when a runtime loses its record of a sandbox
	ReplayDEL  Order = "replay-del"  // the DEL of every sandbox that this pod has had is sent once more, now; it may be long gone
	RestartBox Order = "restart-box" // the sandbox dies: DEL, then ADD of a new one for the same pod
	OverlapBox Order = "overlap-box" // the same, but the DEL of the old one comes after the ADD of the new one
)

// Serve answers orders on a unix socket until ctx ends.
func (a *Agent) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{order}/{uid}", func(w http.ResponseWriter, r *http.Request) {
		err := a.carryOut(r.Context(), Order(r.PathValue("order")), types.UID(r.PathValue("uid")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	server := &http.Server{Handler: mux} //nolint:gosec // a unix socket of the harness: no slow strangers
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve orders: %w", err)
	}
	return nil
}

func (a *Agent) carryOut(ctx context.Context, order Order, uid types.UID) error {
	a.mu.Lock()
	l := a.lives[uid]
	a.mu.Unlock()
	if l == nil {
		return fmt.Errorf("%s: no pod with UID %s has been on this node", order, uid)
	}
	switch order {
	case HoldDEL, ReleaseDEL, SkipDEL:
		return l.order(order)
	case ReplayDEL:
		return a.replay(ctx, l)
	case RestartBox, OverlapBox:
		select {
		case l.again <- order:
			return nil
		default:
			return fmt.Errorf("%s: the sandbox of pod %s/%s is to be restarted already", order, l.pod.Namespace, l.pod.Name)
		}
	default:
		return fmt.Errorf("unknown order %q", order)
	}
}

func (l *life) order(order Order) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case order == SkipDEL:
		l.skip = true
	case order == HoldDEL && l.hold == nil:
		l.hold = make(chan struct{})
	case order == ReleaseDEL && l.hold != nil:
		close(l.hold)
		l.hold = nil
	default:
		return fmt.Errorf("%s: the DEL of pod %s/%s is held: %t", order, l.pod.Namespace, l.pod.Name, l.hold != nil)
	}
	return nil
}

func (a *Agent) replay(ctx context.Context, l *life) error {
	l.mu.Lock()
	boxes := append([]box(nil), l.boxes...)
	l.mu.Unlock()
	var errs []error
	for _, old := range boxes {
		a.tell(l, event.Event{Kind: event.DelExec, Sandbox: old.id, Detail: "replayed"})
		if err := a.plugin.del(ctx, l.pod, old.id, old.path); err != nil {
			a.tell(l, event.Event{Kind: event.DelFailed, Sandbox: old.id, Detail: err.Error()})
			errs = append(errs, err)
			continue
		}
		a.tell(l, event.Event{Kind: event.DelDone, Sandbox: old.id, Detail: "replayed"})
	}
	return errors.Join(errs...)
}

// Ask sends one order to the agent that serves the socket, and waits until it is carried out.
func Ask(ctx context.Context, socket string, order Order, uid types.UID) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	target := "http://sandbox/" + string(order) + "/" + url.PathEscape(string(uid))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return fmt.Errorf("make order: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("send order %s: %w", order, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read answer to order %s: %w", order, err)
	}
	return fmt.Errorf("order %s refused: %s", order, strings.TrimSpace(string(text)))
}
