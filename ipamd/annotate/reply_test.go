package annotate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func status(code int32, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Details: details}}
}

func causes(fields ...string) *metav1.StatusDetails {
	details := &metav1.StatusDetails{Kind: "Pod"}
	for _, field := range fields {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field})
	}
	return details
}

func TestJudge(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	dial := &url.Error{Op: "Patch", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	reset := &url.Error{Op: "Patch", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}
	for name, c := range map[string]struct {
		err    error
		class  class
		reason string
		after  time.Duration
	}{
		"nothing":                 {nil, done, "ok", 0},
		"not found":               {apierrors.NewNotFound(pods, "p"), gone, "notfound", 0},
		"wrapped not found (A9)":  {fmt.Errorf("patch pod: %w", apierrors.NewNotFound(pods, "p")), gone, "notfound", 0},
		"a proxy's 404":           {apierrors.NewGenericServerResponse(404, "PATCH", pods, "p", "<html>", 0, true), failed, "server", 0},
		"another uid":             {status(422, causes("metadata.uid")), replaced, "uid", 0},
		"bad key":                 {status(422, causes("metadata.annotations")), refused, "invalid", 0},
		"failed test or policy":   {status(422, &metav1.StatusDetails{}), refused, "webhook", 0},
		"stale version":           {apierrors.NewConflict(pods, "p", errors.New("x")), conflict, "conflict", 0},
		"RBAC":                    {apierrors.NewForbidden(pods, "p", errors.New("x")), refused, "forbidden", 0},
		"webhook with 403":        {status(403, nil), refused, "webhook", 0},
		"webhook without a code":  {status(400, nil), refused, "webhook", 0},
		"token":                   {apierrors.NewUnauthorized("x"), busy, "unauthorized", 0},
		"throttled":               {apierrors.NewTooManyRequests("x", 7), busy, "throttled", 7 * time.Second},
		"unavailable with wish":   {apierrors.NewGenericServerResponse(503, "PATCH", pods, "p", "", 3, true), failed, "server", 3 * time.Second},
		"internal":                {apierrors.NewInternalError(errors.New("x")), failed, "server", 0},
		"server's deadline":       {apierrors.NewTimeoutError("x", 0), failed, "timeout", 0},
		"no connection":           {dial, unreachable, "unreachable", 0},
		"connection lost":         {reset, failed, "unreachable", 0},
		"client's deadline":       {fmt.Errorf("patch pod: %w", context.DeadlineExceeded), failed, "timeout", 0},
		"something else entirely": {errors.New("x"), failed, "unreachable", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(c.err)
			if got.class != c.class || got.reason != c.reason || got.after != c.after {
				t.Errorf("got class %d, reason %s, after %s; want %d, %s, %s", got.class, got.reason, got.after, c.class, c.reason, c.after)
			}
		})
	}
}
