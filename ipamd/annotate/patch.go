package annotate

import (
	"encoding/json"
	"fmt"
	"strings"
)

// mergePatch sets all keys to value on the pod with this UID. Another UID makes the API server answer 422 with cause field
// metadata.uid, so a pod that was replaced under its name stays untouched without a read before.
func mergePatch(uid string, keys []string, value string) ([]byte, error) {
	type metadata struct {
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	}
	values := make(map[string]string, len(keys))
	for _, key := range keys {
		values[key] = value
	}
	body, err := json.Marshal(struct {
		Metadata metadata `json:"metadata"`
	}{metadata{uid, values}})
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

// clearPatch empties the keys, provided that the pod has this UID and every key still has the value.
func clearPatch(uid string, keys []string, value string) ([]byte, error) {
	empty := ""
	return guardedPatch(uid, keys, value, step{Op: "replace", Value: &empty})
}

// removePatch removes the keys under the same proviso.
func removePatch(uid string, keys []string, value string) ([]byte, error) {
	return guardedPatch(uid, keys, value, step{Op: "remove"})
}

func guardedPatch(uid string, keys []string, value string, change step) ([]byte, error) {
	steps := []step{{Op: "test", Path: "/metadata/uid", Value: &uid}}
	for _, key := range keys {
		change.Path = "/metadata/annotations/" + escapePointer(key)
		steps = append(steps, step{Op: "test", Path: change.Path, Value: &value}, change)
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
