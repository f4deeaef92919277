package introspect

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestPages(t *testing.T) {
	server := httptest.NewServer(Pages(map[string]Page{
		"/v1/enis":   func(context.Context) (any, error) { return []string{"eni-1"}, nil },
		"/v1/status": func(context.Context) (any, error) { return nil, errors.New("not started") },
		"/v1/bad":    func(context.Context) (any, error) { return func() {}, nil },
	}))
	defer server.Close()
	tests := []struct {
		path   string
		status int
		body   string
	}{
		{"/", 200, "[\n  \"/v1/bad\",\n  \"/v1/enis\",\n  \"/v1/status\"\n]\n"},
		{"/v1/enis", 200, "[\n  \"eni-1\"\n]\n"},
		{"/v1/status", 503, "{\n  \"error\": \"not started\"\n}\n"},
		{"/v1/other", 404, "404 page not found\n"},
		{"/v1/bad", 500, "encode page: json: unsupported type: func()\n"},
		{"/debug/pprof/", 404, "404 page not found\n"},
	}
	for _, test := range tests {
		if status, body := get(t, server.Client(), server.URL+test.path); status != test.status || body != test.body {
			t.Errorf("%s: %d %q", test.path, status, body)
		}
	}
	response, err := server.Client().Post(server.URL+"/v1/enis", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", response.Status)
	}
}

// A reader of a page that is gone is told where to look; a page that is there is served.
func TestB85PageThatConsumersKnewIsAnsweredWithAHint(t *testing.T) {
	here := map[string]Page{"/v1/enis": func(context.Context) (any, error) { return 1, nil }, "/v1/status": func(context.Context) (any, error) { return 2, nil }}
	server := httptest.NewServer(Pages(here))
	defer server.Close()
	for path := range gone() {
		status, body := get(t, server.Client(), server.URL+path)
		var answer struct{ Error string }
		if err := json.Unmarshal([]byte(body), &answer); status != http.StatusGone || err != nil || !strings.Contains(answer.Error, "/v1/enis") {
			t.Errorf("%s: %d %q", path, status, body)
		}
		again := httptest.NewServer(Pages(map[string]Page{path: here["/v1/status"]}))
		if status, body := get(t, again.Client(), again.URL+path); status != http.StatusOK || body != "2\n" {
			t.Errorf("%s is served: %d %q", path, status, body)
		}
		again.Close()
	}
}

func TestServeOnAUnixSocketReplacesADeadOneAndEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "introspection.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	page := func(context.Context) (any, error) { return map[string]int{"a": 1}, nil }
	go func() { ended <- Serve(ctx, "unix:"+path, Pages(map[string]Page{"/v1/x": page})) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialUntil(ctx, path)
	}}}
	if status, body := get(t, client, "http://node/v1/x"); status != 200 || !json.Valid([]byte(body)) {
		t.Errorf("%d %q", status, body)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("socket: %v, %v", info, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// dialUntil polls: the listener is made by another goroutine.
func dialUntil(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

func TestServeNamesTheAddressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{taken.Addr().String(), "unix:" + file} {
		if err := Serve(context.Background(), address, nil); err == nil || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	figures := Figures{ENIs: 2, MaxENIs: 4, MaxIPs: 56, IPs: 28, AssignedIPs: 3, AssignedPerENI: map[string]int{"eni-1": 3}, AssignedPerCIDR: map[string]int{"10.0.0.5/32": 1},
		InProgress: map[string]bool{"cloud": true, "save": false}, AnnotationsOwned: 2, AnnotationsPending: 1,
		OldestAnnotation: 1500 * time.Millisecond, AnnotationsOverdue: 4, PassLeft: 53, NamedElsewhere: 6, AnnotationTrouble: map[string]bool{"keys": true}, StateTrouble: map[string]bool{"save": true, "load": false}}
	known := true
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry, func() (Figures, bool) { return figures, known })
	m.Added(time.Millisecond, false)
	m.Added(time.Second, true)
	m.Deleted("del")
	m.Reconciled("cloud", "ok")
	m.Reconciled("host", "error")
	m.Built("v1.2.3")
	m.Started(Start{All: time.Second, Node: time.Millisecond})
	m.Called(Call{Service: "ec2", Action: "AttachNetworkInterface", Took: 20 * time.Millisecond, Code: "AttachmentLimitExceeded", Failed: true})
	m.Called(Call{Service: "ec2", Action: "DescribeSubnets", Took: time.Millisecond})
	m.Called(Call{Service: "imds", Action: "mac", Took: time.Millisecond, Failed: true})
	m.Request("set", "ok", time.Millisecond)
	m.Written(3 * time.Millisecond)
	m.Visible(4 * time.Millisecond)
	m.Repairable("route", "rule")
	m.Repaired("rule")
	if route, rule := testutil.ToFloat64(m.kernelRepairs.WithLabelValues("route")), testutil.ToFloat64(m.kernelRepairs.WithLabelValues("rule")); route != 0 || rule != 1 {
		t.Errorf("%v repairs of routes, %v of rules", route, rule)
	}
	if n := testutil.CollectAndCount(m.kernelRepairs); n != 2 {
		t.Errorf("%d kinds of repair are shown, want those that can be", n)
	}

	want := `
# HELP awscni_add_ip_req_count requests for an address
# TYPE awscni_add_ip_req_count counter
awscni_add_ip_req_count 2
# HELP awscni_assigned_ip_per_eni addresses that pods hold, by ENI
# TYPE awscni_assigned_ip_per_eni gauge
awscni_assigned_ip_per_eni{eni="eni-1"} 3
# HELP awscni_aws_api_error_count failed EC2 and metadata calls by error code; none: no answer
# TYPE awscni_aws_api_error_count counter
awscni_aws_api_error_count{api="AttachNetworkInterface",error="AttachmentLimitExceeded"} 1
awscni_aws_api_error_count{api="mac",error="none"} 1
# HELP awscni_ec2api_error_count failed EC2 calls by action
# TYPE awscni_ec2api_error_count counter
awscni_ec2api_error_count{fn="AttachNetworkInterface"} 1
# HELP awscni_assigned_ip_per_cidr addresses that pods hold, by the block that EC2 gave (each address, /32)
# TYPE awscni_assigned_ip_per_cidr gauge
awscni_assigned_ip_per_cidr{cidr="10.0.0.5/32"} 1
# HELP awscni_aws_utils_error_count failed metadata calls by what was asked for and error code; none: no answer
# TYPE awscni_aws_utils_error_count counter
awscni_aws_utils_error_count{error="none",fn="mac"} 1
# HELP awscni_connmark_backend what keeps the marks of connections: nftables, always
# TYPE awscni_connmark_backend gauge
awscni_connmark_backend{backend="nftables"} 1
# HELP awscni_connmark_reconcile_total readings and repairs of the kernel, of which the marks are a part, by result (success, error)
# TYPE awscni_connmark_reconcile_total counter
awscni_connmark_reconcile_total{result="error"} 1
awscni_connmark_reconcile_total{result="success"} 0
# HELP awscni_ipamd_action_inprogress 1 while an effect of the loop runs, by kind: cloud, host, save
# TYPE awscni_ipamd_action_inprogress gauge
awscni_ipamd_action_inprogress{fn="cloud"} 1
awscni_ipamd_action_inprogress{fn="save"} 0
# HELP awscni_ipamd_error_count failed effects of the loop by kind (cloud, host, save, annotate)
# TYPE awscni_ipamd_error_count counter
awscni_ipamd_error_count{fn="annotate"} 0
awscni_ipamd_error_count{fn="cloud"} 0
awscni_ipamd_error_count{fn="host"} 1
awscni_ipamd_error_count{fn="save"} 0
# HELP awscni_no_available_ip_addresses pods that got no address in time
# TYPE awscni_no_available_ip_addresses counter
awscni_no_available_ip_addresses 1
# HELP vpccni_addresses_named_elsewhere_total addresses given to a pod although another pod's annotation or status still named them: there was no other
# TYPE vpccni_addresses_named_elsewhere_total counter
vpccni_addresses_named_elsewhere_total 6
# HELP vpccni_annotations_oldest_pending_seconds seconds since the oldest wish that the API server has not answered yet came up; 0: there is none
# TYPE vpccni_annotations_oldest_pending_seconds gauge
vpccni_annotations_oldest_pending_seconds 1.5
# HELP vpccni_annotations_overdue pods that still name the address of a sandbox that ended ten minutes ago or earlier; alarm when it is not 0: other pods may have the addresses
# TYPE vpccni_annotations_overdue gauge
vpccni_annotations_overdue 4
# HELP vpccni_annotations_owned pods whose annotations this daemon answers for; while it is not 0, the permission to patch pods is needed
# TYPE vpccni_annotations_owned gauge
vpccni_annotations_owned 2
# HELP vpccni_annotations_pass_left pods that the pass over the node's pods (at start, after a change of settings) has still to visit
# TYPE vpccni_annotations_pass_left gauge
vpccni_annotations_pass_left 53
# HELP vpccni_annotations_pending annotations whose wish the API server has not answered yet
# TYPE vpccni_annotations_pending gauge
vpccni_annotations_pending 1
# HELP vpccni_state_trouble 1 while something is wrong with the state folder, by kind: load (this life began without the last one's state), save (no pod can start), lock (there is no lock file)
# TYPE vpccni_state_trouble gauge
vpccni_state_trouble{kind="load"} 0
vpccni_state_trouble{kind="save"} 1
`
	names := []string{"awscni_assigned_ip_per_cidr", "awscni_aws_utils_error_count", "awscni_connmark_backend", "awscni_connmark_reconcile_total",
		"awscni_ipamd_action_inprogress", "awscni_ipamd_error_count", "awscni_add_ip_req_count", "awscni_assigned_ip_per_eni", "awscni_aws_api_error_count", "awscni_ec2api_error_count", "awscni_no_available_ip_addresses", "vpccni_annotations_owned", "vpccni_annotations_pending",
		"vpccni_addresses_named_elsewhere_total", "vpccni_annotations_oldest_pending_seconds", "vpccni_annotations_overdue", "vpccni_annotations_pass_left", "vpccni_state_trouble"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}

	// Everything in the README's table is there, and nothing else.
	served := httptest.NewServer(m.Handler())
	defer served.Close()
	_, text := get(t, served.Client(), served.URL+"/metrics")
	for _, metric := range metrics() {
		if !strings.Contains(text, "# TYPE "+metric.name+" "+metric.kind+"\n") {
			t.Errorf("%s is not served as a %s", metric.name, metric.kind)
		}
		if strings.Count(Table(), "| `"+metric.name+"` |") != 1 {
			t.Errorf("%s is not in the table once", metric.name)
		}
	}
	if got := strings.Count(text, "# TYPE "); got != len(metrics()) {
		t.Errorf("%d metrics served, %d in the table", got, len(metrics()))
	}

	known = false
	if n, err := testutil.GatherAndCount(registry, eniAllocated.name); err != nil || n != 0 {
		t.Errorf("gauges without figures: %d, %v", n, err)
	}
}
