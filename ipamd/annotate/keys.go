package annotate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultKey is the annotation that Calico and the network policy controller for Amazon VPC read.
const DefaultKey = "vpc.amazonaws.com/pod-ips"

// configPrefix begins the keys by which kubelet and API server know static pods: no address may ever be written there.
const configPrefix = "kubernetes.io/config."

// Keys parses a comma-separated list of annotation keys and keeps its order. The empty list gives the default key. The error
// names everything that is wrong with the list, not only the first thing.
func Keys(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return []string{DefaultKey}, nil
	}
	var keys []string
	var wrong []error
	for i, item := range strings.Split(list, ",") {
		key := strings.TrimSpace(item)
		switch err := checkKey(key); {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("parse annotation keys: item %d, %q: %w", i+1, key, err))
		case slices.Contains(keys, key):
			wrong = append(wrong, fmt.Errorf("parse annotation keys: item %d, %q: named twice", i+1, key))
		default:
			keys = append(keys, key)
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return keys, nil
}

// checkKey applies the API server's own rule (ValidateAnnotations): a qualified name, upper case allowed.
func checkKey(key string) error {
	if key == "" {
		return errors.New("empty")
	}
	if strings.HasPrefix(strings.ToLower(key), configPrefix) {
		return errors.New("reserved for static pods")
	}
	if faults := validation.IsQualifiedName(strings.ToLower(key)); len(faults) > 0 {
		return errors.New("not an annotation key: " + strings.Join(faults, "; "))
	}
	return nil
}
