package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// eventQueue is how many events may wait for the API server. The daemon writes one per reason in minutes.
	eventQueue = 64
	// eventRetry is the pace of attempts while the server is down; events outlive it in the queue.
	eventRetry = 10 * time.Second
	// eventMessage is the API server's limit (ValidateEvent: 1024 bytes).
	eventMessage = 1024
	// eventAttempts bounds the retries of one event, so that one that is never taken does not hold back the others for more
	// than half an hour.
	eventAttempts = 180
)

// NodeReference is the object that a node's events are about. Its UID is the name, as kubelet has it, so that
// `kubectl describe node` finds the event.
func NodeReference(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// Events writes events about one object. Warn and Normal never block and never fail: events are for people, nothing hangs
// on them.
type Events struct {
	client *Client
	about  corev1.ObjectReference
	logger *slog.Logger
	queue  chan corev1.Event

	mu   sync.Mutex
	last map[string]corev1.Event // by reason and message
}

// NewEvents makes a writer of events; Run sends them. Logger nil: silent.
func NewEvents(client *Client, about corev1.ObjectReference, logger *slog.Logger) *Events {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Events{
		client: client, about: about, logger: logger,
		queue: make(chan corev1.Event, eventQueue), last: map[string]corev1.Event{},
	}
}

// Warn reports trouble. Reason is one word in camel case.
func (e *Events) Warn(reason, message string) {
	e.add(e.about, corev1.EventTypeWarning, reason, message)
}

// Normal reports what is well.
func (e *Events) Normal(reason, message string) {
	e.add(e.about, corev1.EventTypeNormal, reason, message)
}

// On gives the same writer for events about another object.
func (e *Events) On(about corev1.ObjectReference) On { return On{e, about} }

// On writes events about one object that is not the writer's usual one.
type On struct {
	events *Events
	about  corev1.ObjectReference
}

// Warn reports trouble.
func (o On) Warn(reason, message string) {
	o.events.add(o.about, corev1.EventTypeWarning, reason, message)
}

// Normal reports what is well, or may be meant.
func (o On) Normal(reason, message string) {
	o.events.add(o.about, corev1.EventTypeNormal, reason, message)
}

func (e *Events) add(about corev1.ObjectReference, kind, reason, message string) {
	event := e.event(about, kind+"/"+reason, shorten(message), metav1.Now())
	event.Type, event.Reason = kind, reason
	select {
	case e.queue <- event:
	default:
		e.logger.Warn("event dropped", "reason", reason, "message", message)
	}
}

// event makes the event, without type and reason, or counts up the one that was written for the same matter and message.
func (e *Events) event(about corev1.ObjectReference, matter, message string, now metav1.Time) corev1.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := about.Namespace + "/" + about.Name + "/" + matter + "/" + message
	event, again := e.last[key]
	if !again {
		if len(e.last) >= eventQueue {
			clear(e.last) // messages with changing parts must not pile up
		}
		event = corev1.Event{
			TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace(about), Name: eventName(about.Name, key, now.Time)},
			InvolvedObject: about, Message: message,
			Source:         corev1.EventSource{Component: fieldManager, Host: e.client.node},
			FirstTimestamp: now, ReportingController: fieldManager, ReportingInstance: e.client.node,
		}
	}
	event.LastTimestamp = now
	event.Count++
	e.last[key] = event
	return event
}

// namespace is the object's own, or "default" for those that have none.
func namespace(about corev1.ObjectReference) string {
	if about.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return about.Namespace
}

// eventName makes an event's name as client-go does: the object's name and a number that does not come twice.
func eventName(object, key string, at time.Time) string {
	sum := fnv.New32a()
	sum.Write([]byte(key))
	return fmt.Sprintf("%s.%x%08x", object, at.UnixNano(), sum.Sum32())
}

// shorten cuts a message to the server's limit without splitting a letter.
func shorten(message string) string {
	if len(message) <= eventMessage {
		return message
	}
	cut := eventMessage
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut]
}

// Run sends events until ctx is done.
func (e *Events) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-e.queue:
			e.deliver(ctx, event)
		}
	}
}

// deliver tries until the server has answered.
func (e *Events) deliver(ctx context.Context, event corev1.Event) {
	for range eventAttempts {
		err := e.client.around.do("event write", func() error { return e.client.putEvent(ctx, event) })
		if err == nil {
			return
		}
		if final(err) {
			e.logger.Warn("cannot write event", "reason", event.Reason, "message", event.Message, "err", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(eventRetry):
		}
	}
}

// final tells an answer that another attempt would only repeat.
func final(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusTooManyRequests && code != http.StatusUnauthorized
}

// putEvent writes an event: a new one as it is, a repeated one as a new count on the one that stands. The server forgets
// events after an hour; then it is written anew.
func (c *Client) putEvent(ctx context.Context, event corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	if event.Count > 1 {
		body, err := json.Marshal(map[string]any{"count": event.Count, "lastTimestamp": event.LastTimestamp})
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		err = c.core.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).
			MaxRetries(0).Body(body).Do(ctx).Error()
		if err == nil || !apierrors.IsNotFound(err) {
			return wrapEvent(event, err)
		}
	}
	err := c.core.Post().Namespace(event.Namespace).Resource("events").MaxRetries(0).Body(&event).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier attempt was carried out
	}
	return wrapEvent(event, err)
}

func wrapEvent(event corev1.Event, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write event %s/%s: %w", event.Namespace, event.Name, err)
}
