package annotate

import (
	"encoding/json"
	"fmt"
	"strings"
)

// annotation is a key with a value that it has or is to have.
type annotation struct{ key, value string }

// mergePatch sets annotations on the pod with this UID, unless it is in the host's network. Another UID makes the API server
// answer 422 with cause field metadata.uid, so a pod that was replaced under its name stays untouched without a read before.
// A pod's hostNetwork cannot be changed (ValidatePodUpdate): taking it off is nothing where it is not set, and else 422 with
// cause field spec.
func mergePatch(uid string, wanted []annotation) ([]byte, error) {
	type metadata struct {
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	}
	values := make(map[string]string, len(wanted))
	for _, a := range wanted {
		values[a.key] = a.value
	}
	type spec struct {
		HostNetwork *bool `json:"hostNetwork"` // null takes it off
	}
	body, err := json.Marshal(struct {
		Metadata metadata `json:"metadata"`
		Spec     spec     `json:"spec"`
	}{metadata{uid, values}, spec{}})
	if err != nil {
		return nil, fmt.Errorf("encode merge patch: %w", err)
	}
	return body, nil
}

// step is one operation of a JSON patch (RFC 6902).
type step struct {
	Op    string  `json:"op"`
	Path  string  `json:"path"`
	Value *string `json:"value,omitempty"` // a pointer, because "" must be sent
}

// clearPatch empties the keys, provided that the pod has this UID and every key still has its value.
func clearPatch(uid string, held []annotation) ([]byte, error) {
	empty := ""
	return guardedPatch(uid, held, step{Op: "replace", Value: &empty})
}

// removePatch removes the keys under the same proviso.
func removePatch(uid string, held []annotation) ([]byte, error) {
	return guardedPatch(uid, held, step{Op: "remove"})
}

func guardedPatch(uid string, held []annotation, change step) ([]byte, error) {
	steps := []step{{Op: "test", Path: "/metadata/uid", Value: &uid}}
	for _, a := range held {
		change.Path = "/metadata/annotations/" + escapePointer(a.key)
		steps = append(steps, step{Op: "test", Path: change.Path, Value: &a.value}, change)
	}
	body, err := json.Marshal(steps)
	if err != nil {
		return nil, fmt.Errorf("encode JSON patch: %w", err)
	}
	return body, nil
}

// escapePointer writes a key as one part of a JSON pointer (RFC 6901).
func escapePointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
