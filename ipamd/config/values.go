package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is where a setting's text goes: it takes it or says that it cannot, and says in words what it takes.
type value interface {
	set(text string) error
	accepts() string
}

// errValue is for values whose words in accepts() already say everything.
var errValue = errors.New("not accepted")

type boolean struct{ into *bool }

func (v boolean) accepts() string {
	return "true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)"
}

func (v boolean) set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errValue // accepts says it all
	}
	*v.into = on
	return nil
}

type integer struct {
	into     *int
	min, max int
}

func (v integer) accepts() string { return fmt.Sprintf("an integer from %d to %d", v.min, v.max) }

func (v integer) set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < v.min || n > v.max {
		return errValue
	}
	*v.into = n
	return nil
}

// seconds is a whole number of seconds, as the incumbent's settings give times.
type seconds struct {
	into *time.Duration
	max  int
}

func (v seconds) accepts() string {
	return fmt.Sprintf("a whole number of seconds from 0 to %d", v.max)
}

func (v seconds) set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > v.max {
		return errValue
	}
	*v.into = time.Duration(n) * time.Second
	return nil
}

type duration struct {
	into *time.Duration
	max  time.Duration
}

func (v duration) accepts() string {
	return fmt.Sprintf("a duration from 0 to %s, such as 250ms or 2s", v.max)
}

func (v duration) set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > v.max {
		return errValue
	}
	*v.into = d
	return nil
}

// text is any string.
type text struct{ into *string }

func (v text) accepts() string { return "any text" }

func (v text) set(given string) error {
	*v.into = given
	return nil
}

type oneOf struct {
	into   *string
	values []string // compared without regard to case, stored as spelled here
}

func (v oneOf) accepts() string { return "one of " + strings.Join(v.values, ", ") }

func (v oneOf) set(text string) error {
	for _, known := range v.values {
		if strings.EqualFold(text, known) {
			*v.into = known
			return nil
		}
	}
	return errValue
}

// absolutePath is a file or directory.
type absolutePath struct{ into *string }

func (v absolutePath) accepts() string { return "an absolute path" }

func (v absolutePath) set(text string) error {
	if !filepath.IsAbs(text) {
		return errValue
	}
	*v.into = filepath.Clean(text)
	return nil
}

// socketPath is an absolute path that fits into a socket address (sockaddr_un, unix(7)).
type socketPath struct{ into *string }

func (v socketPath) accepts() string {
	return fmt.Sprintf("an absolute path of at most %d bytes", maxSocketPath)
}

func (v socketPath) set(text string) error {
	if len(text) > maxSocketPath {
		return fmt.Errorf("it has %d bytes", len(text))
	}
	return absolutePath(v).set(text)
}

// listenAddress is host:port, :port or unix:/path.
type listenAddress struct{ into *string }

func (v listenAddress) accepts() string { return "host:port, :port or unix:/absolute/path" }

func (v listenAddress) set(text string) error {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return errValue
		}
		*v.into = text
		return nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return err
	}
	if host != "" && host != "localhost" && net.ParseIP(host) == nil {
		return fmt.Errorf("host %q is not an address", host)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	*v.into = text
	return nil
}

type httpURL struct{ into *string }

func (v httpURL) accepts() string { return "a URL that begins with http:// or https://" }

func (v httpURL) set(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errValue
	}
	*v.into = text
	return nil
}

// vethPrefix begins the name of the host's end of every pod's link. The names refused are those of links that others make.
type vethPrefix struct{ into *string }

func (v vethPrefix) accepts() string {
	return fmt.Sprintf("1 to %d letters or digits, but not eth, lo or vlan", maxVethPrefix)
}

func (v vethPrefix) set(text string) error {
	if len(text) > maxVethPrefix || slices.Contains([]string{"eth", "lo", "vlan"}, text) {
		return errValue
	}
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return errValue
		}
	}
	*v.into = text
	return nil
}

type logLevel struct{ into *slog.Level }

func (v logLevel) accepts() string { return "DEBUG, INFO, WARN, ERROR or FATAL, in any case" }

func (v logLevel) set(text string) error {
	level, ok := map[string]slog.Level{
		"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERROR": slog.LevelError,
		"FATAL": slog.LevelError, // the incumbent's fifth level; nothing here is logged above ERROR
	}[strings.ToUpper(text)]
	if !ok {
		return errValue
	}
	*v.into = level
	return nil
}

// keyList is the annotation's keys. What a key is belongs to the annotation's package; its function comes with Load.
type keyList struct {
	names, joined *[]string
	parse         KeyParser
}

func (v keyList) accepts() string {
	return "annotation keys or presets (aws, calico, neutral) separated by commas, each with :all behind it where the value is to be all of a pod's addresses, such as calico,vpc.amazonaws.com/pod-ips,example.org/ips:all"
}

func (v keyList) set(text string) (err error) {
	*v.names, *v.joined, err = v.parse(text)
	return err
}

// tagMap is a JSON object of EC2 tags.
type tagMap struct{ into *map[string]string }

func (v tagMap) accepts() string {
	return `a JSON object of strings, such as {"team":"net"}; keys do not begin with "aws:"`
}

func (v tagMap) set(text string) error {
	var tags map[string]string
	if err := json.Unmarshal([]byte(text), &tags); err != nil {
		return err
	}
	for key := range tags {
		if key == "" || strings.HasPrefix(key, "aws:") {
			return fmt.Errorf("key %q", key)
		}
	}
	*v.into = tags
	return nil
}
