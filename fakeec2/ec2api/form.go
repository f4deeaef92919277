package ec2api

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds the dots of a key; the deepest that EC2 has for these actions is TagSpecification.1.Tag.1.Key.
const maxDepth = 8

// commonKeys belong to every request: the protocol's own, and those of a signed query string.
func commonKeys() []string {
	return []string{
		"Action", "Version", "AWSAccessKeyId", "Signature", "SignatureMethod", "SignatureVersion", "Timestamp", "Expires", "SecurityToken",
		"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Security-Token",
	}
}

// decodeForm fills a struct from a flattened form ("Filter.1.Value.2=x"). A field's tag `query:"Name"` or
// `query:"Name,required"` says where it comes from; strings, bools and ints, pointers to them, structs, and lists of strings
// or structs are known. A key that no field wants is refused: as UnsupportedOperation where unserved names it or what it
// is a part of (EC2 knows it, this fake does not), else as UnknownParameter.
func decodeForm(values url.Values, into any, unserved []string) error {
	root, err := parseKeys(values)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(slices.Values(unserved)) {
		if path := root.find(strings.Split(name, "."), ""); path != "" {
			return refuse("UnsupportedOperation", "The parameter %s is not supported by this fake", path)
		}
	}
	return root.decodeStruct(reflect.ValueOf(into).Elem(), "")
}

// branch is a part of the form: "Filter" has the kids "1", "2", and so on.
type branch struct {
	value string
	given bool
	kids  map[string]*branch
}

func (b *branch) kid(name string) *branch {
	if b.kids == nil {
		b.kids = map[string]*branch{}
	}
	if b.kids[name] == nil {
		b.kids[name] = &branch{}
	}
	return b.kids[name]
}

// find gives the path of the first branch of a dotted name, or "". "*" stands for any kid.
func (b *branch) find(name []string, path string) string {
	if len(name) == 0 {
		return path
	}
	for _, kid := range slices.Sorted(maps.Keys(b.kids)) {
		if name[0] != "*" && name[0] != kid {
			continue
		}
		if found := b.kids[kid].find(name[1:], join(path, kid)); found != "" {
			return found
		}
	}
	return ""
}

// parseQuery is url.ParseQuery without its limit of 10,000 parameters: EC2's own limits shall speak, and the body is bounded.
func parseQuery(query string) (url.Values, bool) {
	values := url.Values{}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		key, badKey := url.QueryUnescape(key)
		value, badValue := url.QueryUnescape(value)
		if badKey != nil || badValue != nil || strings.Contains(pair, ";") {
			return url.Values{}, false
		}
		values[key] = append(values[key], value)
	}
	return values, true
}

func parseKeys(values url.Values) (*branch, error) {
	common := commonKeys()
	root := &branch{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if len(values[key]) != 1 {
			return nil, refuse("InvalidQueryParameter", "The parameter %s was given more than once", clip(key))
		}
		if slices.Contains(common, key) {
			continue
		}
		if strings.Count(key, ".") > maxDepth {
			return nil, unknown(key)
		}
		at := root
		for part := range strings.SplitSeq(key, ".") {
			at = at.kid(part)
		}
		at.value, at.given = values[key][0], true
	}
	return root, nil
}

// decodeStruct takes the kids that fields want; one that is left over is unknown.
func (b *branch) decodeStruct(into reflect.Value, path string) error {
	if b.given {
		return unknown(path)
	}
	wanted := map[string]bool{}
	if err := b.decodeFields(into, path, wanted); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.kids)) {
		if !wanted[name] {
			return unknown(join(path, name))
		}
	}
	return nil
}

func (b *branch) decodeFields(into reflect.Value, path string, wanted map[string]bool) error {
	for i := range into.NumField() {
		field := into.Type().Field(i)
		if field.Anonymous {
			if err := b.decodeFields(into.Field(i), path, wanted); err != nil {
				return err
			}
			continue
		}
		name, option, _ := strings.Cut(field.Tag.Get("query"), ",")
		wanted[name] = true
		if kid := b.kids[name]; kid != nil {
			if err := kid.decode(into.Field(i), join(path, name)); err != nil {
				return err
			}
		}
		if option == "required" && (into.Field(i).IsZero() && !isCount(b.kids[name], field.Type)) {
			return missing(join(path, name))
		}
	}
	return nil
}

// isCount tells whether a zero came from a number or bool that was given: such a zero is a value, an empty string is not.
func isCount(b *branch, t reflect.Type) bool {
	return b != nil && (t.Kind() == reflect.Int || t.Kind() == reflect.Bool)
}

func (b *branch) decode(into reflect.Value, path string) error {
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return b.decode(into.Elem(), path)
	case reflect.Struct:
		return b.decodeStruct(into, path)
	case reflect.Slice:
		return b.decodeList(into, path)
	}
	for _, name := range slices.Sorted(maps.Keys(b.kids)) {
		return unknown(join(path, name)) // a scalar has no parts
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(b.value)
	case reflect.Bool:
		if b.value != "true" && b.value != "false" {
			return invalid(path, b.value, "Expecting true or false.")
		}
		into.SetBool(b.value == "true")
	case reflect.Int:
		n, err := strconv.ParseInt(b.value, 10, 32) // EC2's integers have 32 bits
		if err != nil {
			return invalid(path, b.value, "Expecting an integer.")
		}
		into.SetInt(n)
	default:
		return refuse("InternalError", "The parameter %s has a type that the decoder does not know", path)
	}
	return nil
}

// decodeList reads kids "1", "2", ... in the order of their numbers; gaps are no error.
func (b *branch) decodeList(into reflect.Value, path string) error {
	if b.given {
		return unknown(path)
	}
	numbers := make([]int, 0, len(b.kids))
	for _, name := range slices.Sorted(maps.Keys(b.kids)) {
		n, err := strconv.ParseUint(name, 10, 31)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != name {
			return unknown(join(path, name))
		}
		numbers = append(numbers, int(n))
	}
	slices.Sort(numbers)
	list := reflect.MakeSlice(into.Type(), len(numbers), len(numbers))
	for at, n := range numbers {
		name := strconv.Itoa(n)
		if err := b.kids[name].decode(list.Index(at), join(path, name)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
