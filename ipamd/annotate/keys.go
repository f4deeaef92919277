package annotate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// DefaultKey is the annotation that Calico and the network policy controller for Amazon VPC read. The latter takes the
	// value as it is, so it stays one address unless somebody asks for more.
	DefaultKey = "vpc.amazonaws.com/pod-ips"
	// NeutralKey is this project's own, for engines and CNIs that are bound to no vendor. Its contract is in
	// ipamd/docs: the same meaning of presence, value and "" as DefaultKey.
	NeutralKey = "vpc-cni.github.io/pod-ips"
	// Calico's own two. It looks only at the first for presence and for "", and takes addresses from the second before it.
	calicoKey     = "cni.projectcalico.org/podIP"
	calicoListKey = "cni.projectcalico.org/podIPs"
)

// Forms of a value, as they are written behind a key: first is one bare address, all is every address of the pod, joined by
// commas.
const (
	formFirst = "first"
	formAll   = "all"
)

// maxKeys is so many that the DEL of a pod in the midst of a renaming, one patch of the old keys and the new ones, stays within
// the 16 annotations that the shipped admission policy lets the daemon change at once.
const maxKeys = 8

// keyForm is a key with the form of its value; "" is the key's usual one.
type keyForm struct{ name, form string }

// presets are names for keys that belong together.
func presets(name string) []keyForm {
	switch name {
	case "aws":
		return []keyForm{{name: DefaultKey}}
	case "calico":
		return []keyForm{{name: calicoKey}, {name: calicoListKey}}
	case "neutral":
		return []keyForm{{name: NeutralKey}}
	}
	return nil
}

// presetNames are for errors.
var presetNames = []string{"aws", "calico", "neutral"}

// keyList is what a list of keys is parsed into.
type keyList struct {
	names, joined []string
}

// Keys parses a comma-separated list of annotation keys and presets, each perhaps with ":all" or ":first" behind it, and
// keeps its order. Names are all keys, joined those of them whose value is all of a pod's addresses. The empty list gives the
// default key. The error names everything that is wrong with the list, not only the first thing.
func Keys(list string) (names, joined []string, err error) {
	if strings.TrimSpace(list) == "" {
		return []string{DefaultKey}, nil, nil
	}
	var keys keyList
	var wrong []error
	for i, item := range strings.Split(list, ",") {
		item = strings.TrimSpace(item)
		if err := keys.add(item); err != nil {
			wrong = append(wrong, fmt.Errorf("parse annotation keys: item %d, %q: %w", i+1, item, err))
		}
	}
	if len(keys.names) > maxKeys {
		wrong = append(wrong, fmt.Errorf("parse annotation keys: %d keys: at most %d", len(keys.names), maxKeys))
	}
	if slices.Contains(keys.names, calicoListKey) && !slices.Contains(keys.names, calicoKey) {
		wrong = append(wrong, fmt.Errorf("parse annotation keys: %q alone: Calico looks only at %s for a pod's address to be there and for its network to have ended: name the preset calico, which writes both", calicoListKey, calicoKey))
	}
	if len(wrong) > 0 {
		return nil, nil, errors.Join(wrong...)
	}
	return keys.names, keys.joined, nil
}

// add takes one item of the list.
func (l *keyList) add(item string) error {
	name, form, formed := strings.Cut(item, ":")
	if formed && form != formFirst && form != formAll {
		return fmt.Errorf("the form %q is unknown: write %q for one address or %q for all of a pod's addresses, joined by commas", form, ":"+formFirst, ":"+formAll)
	}
	keys := presets(name)
	if keys == nil {
		if err := checkKey(name); err != nil {
			return err
		}
		keys = []keyForm{{name: name}}
	}
	if len(keys) > 1 && formed {
		return fmt.Errorf("the preset %s has its forms already: leave %q out", name, ":"+form)
	}
	for _, key := range keys {
		if formed {
			key.form = form
		}
		if err := l.take(key); err != nil {
			return err
		}
	}
	return nil
}

// take adds one key.
func (l *keyList) take(key keyForm) error {
	switch {
	case slices.Contains(l.names, key.name):
		return fmt.Errorf("%s is named twice: leave one out", key.name)
	case key.name == calicoKey && key.form == formAll:
		return fmt.Errorf("Calico reads one address there: leave %q out; the list goes to %s", ":"+formAll, calicoListKey) //nolint:staticcheck // a proper name
	case key.name == calicoListKey && key.form == formFirst:
		return fmt.Errorf("Calico reads all of a pod's addresses there and believes them before %s: leave %q out", calicoKey, ":"+formFirst) //nolint:staticcheck // a proper name
	}
	l.names = append(l.names, key.name)
	if key.form == formAll || key.name == calicoListKey {
		l.joined = append(l.joined, key.name)
	}
	return nil
}

// checkKey applies the API server's own rule (ValidateAnnotations): a qualified name, upper case allowed. Then it refuses
// what means something else to somebody.
func checkKey(key string) error {
	if key == "" {
		return errors.New("empty: write a key, or leave the comma out")
	}
	if faults := validation.IsQualifiedName(strings.ToLower(key)); len(faults) > 0 {
		return errors.New("not an annotation key: " + strings.Join(faults, "; "))
	}
	if why := ownedBy(key); why != "" {
		return errors.New(why + ": choose a key of your own, such as example.org/pod-ip, or a preset (" + strings.Join(presetNames, ", ") + ")")
	}
	if meant := nearPreset(key); meant != "" {
		return fmt.Errorf("looks like the preset %s: write that, or give the key a prefix, such as example.org/%s", meant, key)
	}
	return nil
}

// ownedBy says who would take an address under the key for something else; "" is nobody.
func ownedBy(key string) string {
	prefix, _, found := strings.Cut(strings.ToLower(key), "/")
	if !found {
		return ""
	}
	under := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	switch {
	case under("kubernetes.io"), under("k8s.io"): // kubernetes.io/config.* make static pods, others steer kubelet and controllers
		return "reserved for Kubernetes"
	case prefix == "cni.projectcalico.org" && key != calicoKey && key != calicoListKey:
		return "an instruction to Calico or its own record"
	case under("k8s.v1.cni.cncf.io"):
		return "reserved for the multi-network standard, whose values are JSON"
	case prefix == "vpc.amazonaws.com" && key != DefaultKey, under("k8s.amazonaws.com"):
		return "reserved for Amazon's controllers"
	case prefix == "vpc-cni.github.io" && key != NeutralKey:
		return "not the neutral key, which is " + NeutralKey
	}
	return ""
}

// nearPreset gives the preset that a key without a prefix is a slip of, if any.
func nearPreset(key string) string {
	if strings.Contains(key, "/") {
		return ""
	}
	for _, name := range presetNames {
		if slip(strings.ToLower(key), name) {
			return name
		}
	}
	return ""
}

// slip tells whether two words are one letter apart, missing, doubled, wrong or swapped, or equal.
func slip(a, b string) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}
