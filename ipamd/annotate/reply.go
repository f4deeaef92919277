package annotate

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// class groups the API server's answers by what can be done about them.
type class int

const (
	done        class = iota // carried out
	gone                     // there is no such pod
	replaced                 // the pod has another UID
	conflict                 // the request lost a race
	refused                  // the server will not take it: permissions, admission, validation; or a failed test of a JSON patch
	busy                     // not carried out, try again: throttled, or the token is being renewed
	unreachable              // not carried out: no connection
	failed                   // no usable answer: it may have been carried out, or be carried out yet
	waiting                  // no request: the pod is not ready for it
	denied                   // a clear was refused, and that was answered
	distant                  // no request: the pod will not be ready for it soon
)

// Reasons, as they appear in answers and metrics.
const (
	reasonOK           = "ok"
	reasonNotFound     = "notfound"    // the pod is gone
	reasonUID          = "uid"         // another pod of that name
	reasonValue        = "value"       // somebody else's value
	reasonMissing      = "absent"      // no such key
	reasonHostNetwork  = "hostnetwork" // never annotated
	reasonSuperseded   = "superseded"  // a living sandbox of the pod has the same address
	reasonForbidden    = "forbidden"
	reasonWebhook      = "webhook" // an admission webhook or policy
	reasonInvalid      = "invalid"
	reasonAltered      = "altered" // the annotation is well, something else of the pod is not
	reasonConflict     = "conflict"
	reasonThrottled    = "throttled"
	reasonUnauthorized = "unauthorized"
	reasonServer       = "server"
	reasonTimeout      = "timeout"
	reasonUnreachable  = "unreachable"
	reasonMirror       = "mirror"      // a static pod whose mirror pod is not there yet
	reasonNoStatus     = "nostatus"    // the status has no address yet
	reasonTerminating  = "terminating" // to be cleared at DEL, not removed
	reasonAbandoned    = "abandoned"   // refused for so long, or so often, that it is given up
	reasonContested    = "contested"   // somebody else keeps changing the value
	reasonOverdue      = "overdue"     // a clear that is not done after ten minutes
	reasonUnsettled    = "unsettled"   // an earlier request may yet be carried out
)

// reply is a judged answer of the API server.
type reply struct {
	class  class
	reason string
	code   int           // HTTP status, 0 without an answer
	after  time.Duration // the server's wish, 0 if it has none
	err    error
}

// doubtful tells whether the request may have been, or may yet be, carried out.
func (r reply) doubtful() bool { return r.class == failed }

// judge reads the outcome of a request.
func judge(err error) reply {
	if err == nil {
		return reply{class: done, reason: reasonOK, code: http.StatusOK}
	}
	r := judgeStatus(err)
	if r.class == done {
		r = judgeConnection(err)
	}
	r.err = err
	return r
}

// judgeStatus reads a status that the server sent; class done means that there is none. Measured on a real 1.34 server:
// another UID in a merge patch is 422 with cause field metadata.uid; a failed test is 422 without causes; an admission
// policy refuses with 422 and a message; 409 comes for a stale resourceVersion only.
func judgeStatus(err error) reply {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return reply{}
	}
	status := answer.Status()
	r := reply{code: int(status.Code)}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		r.after = time.Duration(seconds) * time.Second
	}
	switch code := r.code; {
	case code == http.StatusNotFound && !fromElsewhere(status):
		r.class, r.reason = gone, reasonNotFound
	case code == http.StatusUnprocessableEntity && hasCause(status, "metadata.uid"):
		r.class, r.reason = replaced, reasonUID
	case code == http.StatusConflict:
		r.class, r.reason = conflict, reasonConflict
	case code == http.StatusTooManyRequests:
		r.class, r.reason = busy, reasonThrottled
	case code == http.StatusUnauthorized:
		r.class, r.reason = busy, reasonUnauthorized
	case code == http.StatusForbidden && ofPods(status):
		r.class, r.reason = refused, reasonForbidden
	case code == http.StatusUnprocessableEntity && hasCause(status, "metadata.annotations"):
		r.class, r.reason = refused, reasonInvalid
	case code == http.StatusUnprocessableEntity && hasCause(status, ""):
		// Of the spec our patch holds nothing but that there is no hostNetwork, which set looks into. Else a mutating webhook
		// changed the pod on its way.
		r.class, r.reason = refused, reasonAltered
	case code == http.StatusGatewayTimeout || code == http.StatusRequestTimeout:
		r.class, r.reason = failed, reasonTimeout
	case code >= http.StatusBadRequest && code < http.StatusInternalServerError && !fromElsewhere(status):
		// Webhooks choose their own code and send no details (apiserver's webhook ToStatusErr).
		r.class, r.reason = refused, reasonWebhook
	default:
		r.class, r.reason = failed, reasonServer
	}
	return r
}

// judgeConnection reads an error without a status.
func judgeConnection(err error) reply {
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Op == "dial" {
		return reply{class: unreachable, reason: reasonUnreachable}
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return reply{class: unreachable, reason: reasonUnreachable}
	}
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return reply{class: failed, reason: reasonTimeout}
	}
	return reply{class: failed, reason: reasonUnreachable}
}

// fromElsewhere tells a status that client-go made up for a body that is none: a proxy's or a load balancer's page. Its 404
// does not mean that the pod is gone.
func fromElsewhere(status metav1.Status) bool {
	if status.Details == nil {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}

// hasCause tells whether the status blames the field, or any field if field is "".
func hasCause(status metav1.Status, field string) bool {
	if status.Details == nil {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Field != "" && (field == "" || cause.Field == field) {
			return true
		}
	}
	return false
}

// ofPods tells the authorizer's refusal from a webhook's: only the former names the resource.
func ofPods(status metav1.Status) bool {
	return status.Details != nil && status.Details.Kind == "pods"
}
