package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// unreadable says where a text cannot be read. The YAML library has lines for what is no YAML, but no place for a value of the
// wrong type or a field that there is not; those are looked for here, every one.
func unreadable(text []byte, cause error) error {
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return &Error{[]Problem{{Cause: err}}}
	}
	var p problems
	p.unreadable("", document, reflect.TypeFor[Scenario]())
	if len(p) == 0 {
		p.refused("", cause)
	}
	return p.err()
}

// unreadable notes what in a value is not of the type.
func (p *problems) unreadable(field string, value json.RawMessage, t reflect.Type) {
	if readable(value, t) {
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var list []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case words(t) != "": // a leaf, whatever Go makes of it
	case t.Kind() == reflect.Slice && json.Unmarshal(value, &list) == nil:
		for i, element := range list {
			p.unreadable(fmt.Sprintf("%s[%d]", field, i), element, t.Elem())
		}
		return
	case t.Kind() == reflect.Map && json.Unmarshal(value, &object) == nil:
		for _, key := range slices.Sorted(maps.Keys(object)) {
			p.unreadable(join(field, key), object[key], t.Elem())
		}
		return
	case t.Kind() == reflect.Struct && json.Unmarshal(value, &object) == nil:
		p.unreadableFields(field, object, t)
		return
	}
	accepts := words(t)
	if accepts == "" {
		accepts = "a list"
		if t.Kind() != reflect.Slice {
			accepts = "a map"
		}
	}
	var shown any
	p.refused(field, json.Unmarshal(value, &shown)) // it is JSON, so this never fails
	p.want(field, shown, accepts)
}

func (p *problems) unreadableFields(field string, object map[string]json.RawMessage, t reflect.Type) {
	types := map[string]reflect.Type{}
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		types[t.Field(i).Tag.Get("json")] = t.Field(i).Type
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if of, known := types[key]; known {
			p.unreadable(join(field, key), object[key], of)
		} else {
			*p = append(*p, Problem{Field: join(field, key), Cause: errors.New("unknown field: " + quoting(key) + "want one of " + strings.Join(slices.Sorted(maps.Keys(types)), ", "))})
		}
	}
}

// quoting says what happened to a key that YAML takes for a truth value.
func quoting(key string) string {
	switch key {
	case "false":
		return `YAML takes a bare off, no or n for false: write "off": in quotes; `
	case "true":
		return `YAML takes a bare on, yes or y for true: write "on": in quotes; `
	}
	return ""
}

func join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// readable tells whether the YAML library takes the value for the type: a number or boolean will do as text.
func readable(value json.RawMessage, t reflect.Type) bool {
	if t.Kind() == reflect.String && len(value) > 0 && !bytes.ContainsAny(value[:1], `"[{`) {
		return true
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.DisallowUnknownFields()
	return decoder.Decode(reflect.New(t).Interface()) == nil
}

// words says what a leaf's type takes, "" for lists and maps.
func words(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return `a duration such as "1.5s", 0 or more, or "never"`
	case reflect.TypeFor[Range]():
		return `a duration such as "1.5s", or a range such as "1s..5s"`
	case reflect.TypeFor[netip.Addr]():
		return "an address such as 10.0.1.10"
	case reflect.TypeFor[netip.Prefix]():
		return "a network such as 10.0.1.0/24"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return ""
}
