package ec2api_test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const version = "&Version=2016-11-15"

// failure is EC2's error body, read the way it is documented.
type failure struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

// post sends a form and gives status, code ("" for success) and message.
func post(t *testing.T, h http.Handler, form string) (int, failure) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	return serve(t, h, r)
}

func serve(t *testing.T, h http.Handler, r *http.Request) (int, failure) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Type"); got != "text/xml;charset=UTF-8" {
		t.Fatalf("content type %q", got)
	}
	if w.Code == http.StatusOK {
		if !strings.Contains(w.Body.String(), `xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>`+w.Header().Get("X-Amzn-Requestid")) {
			t.Fatalf("no namespace or request id: %s", w.Body)
		}
		return w.Code, failure{}
	}
	var f failure
	if err := xml.Unmarshal(w.Body.Bytes(), &f); err != nil || f.Code == "" || f.RequestID == "" {
		t.Fatalf("no EC2 error (%v): %s", err, w.Body)
	}
	return w.Code, f
}

func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	describe := "Action=DescribeNetworkInterfaces" + version
	cases := []struct{ name, form, want, message string }{
		{"no action", "Version=2016-11-15", "MissingAction", ""},
		{"unknown action", "Action=Explode" + version, "InvalidAction", "The action Explode is not valid for this web service."},
		{"no version", "Action=DescribeVpcs", "MissingParameter", "The request must contain the parameter Version"},
		{"old version", "Action=DescribeVpcs&Version=2010-01-01", "NoSuchVersion", ""},
		{"bad escape", describe + "&NextToken=%zz", "MalformedQueryString", ""},
		{"a key twice", describe + "&NextToken=a&NextToken=b", "InvalidQueryParameter", ""},
		{"unknown key", describe + "&Colour=red", "UnknownParameter", "The parameter Colour is not recognized"},
		{"unknown part of a list", describe + "&Filter.1.Colour=red&Filter.1.Name=status", "UnknownParameter", "The parameter Filter.1.Colour is not recognized"},
		{"list without number", describe + "&NetworkInterfaceId=eni-01234567", "UnknownParameter", ""},
		{"list with number zero", describe + "&NetworkInterfaceId.0=eni-01234567", "UnknownParameter", ""},
		{"list with odd number", describe + "&NetworkInterfaceId.01=eni-01234567", "UnknownParameter", ""},
		{"list with huge number", describe + "&NetworkInterfaceId.99999999999999999999=eni-01234567", "UnknownParameter", ""},
		{"scalar with parts", describe + "&MaxResults.1=5", "UnknownParameter", "The parameter MaxResults.1 is not recognized"},
		{"too many dots", describe + "&a.b.c.d.e.f.g.h.i.j=1", "UnknownParameter", ""},
		{"empty names", describe + "&.=1", "UnknownParameter", ""},
		{"number", describe + "&MaxResults=ten", "InvalidParameterValue", "Value (ten) for parameter MaxResults is invalid. Expecting an integer."},
		{"number of 33 bits", describe + "&MaxResults=4294967296", "InvalidParameterValue", ""},
		{"boolean", describe + "&DryRun=yes", "InvalidParameterValue", "Value (yes) for parameter DryRun is invalid. Expecting true or false."},
		{"boolean in upper case", describe + "&DryRun=TRUE", "InvalidParameterValue", ""},
		{"filter without name", describe + "&Filter.1.Value.1=x", "MissingParameter", "The request must contain the parameter Filter.1.Name"},
		{"unknown filter", describe + "&Filter.1.Name=colour&Filter.1.Value.1=x", "InvalidParameterValue", "The filter 'colour' is invalid"},
		{"required", "Action=DeleteNetworkInterface" + version, "MissingParameter", "The request must contain the parameter NetworkInterfaceId"},
		{"required but empty", "Action=DeleteNetworkInterface&NetworkInterfaceId=" + version, "MissingParameter", ""},
		{"required number", "Action=AttachNetworkInterface&InstanceId=i-01234567&NetworkInterfaceId=eni-01234567" + version, "MissingParameter", "The request must contain the parameter DeviceIndex"},
		{"dry run where EC2 has none", "Action=AssignPrivateIpAddresses&NetworkInterfaceId=eni-01234567&DryRun=true" + version, "UnknownParameter", ""},
		{"not served", "Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=1&NetworkInterface.2.EnaQueueCount=4" + version, "UnsupportedOperation", "The parameter NetworkInterface.2.EnaQueueCount is not supported by this fake"},
		{"one bad id of two", describe + "&NetworkInterfaceId.2=eni-00000002&NetworkInterfaceId.1=eni-00000001", "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID 'eni-00000001' does not exist"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			status, got := post(t, e.handler, c.form)
			if status != http.StatusBadRequest || got.Code != c.want || c.message != "" && got.Message != c.message {
				t.Fatalf("%d %s: %s", status, got.Code, got.Message)
			}
		})
	}
}

func TestOversizedRequests(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	huge := strings.Repeat("x", 1<<20)
	var manyFilters, manyIDs strings.Builder
	for n := range 10_000 {
		fmt.Fprintf(&manyFilters, "&Filter.%d.Name=status&Filter.%d.Value.1=x", n+1, n+1)
		fmt.Fprintf(&manyIDs, "&NetworkInterfaceId.%d=%s", n+1, e.model.InstanceENIs(e.node.ID)[0].ID)
	}
	describe := "Action=DescribeNetworkInterfaces" + version
	cases := []struct {
		name, form string
		status     int
		want       string
	}{
		{"huge id", describe + "&NetworkInterfaceId.1=" + huge, 400, "InvalidNetworkInterfaceId.Malformed"},
		{"huge description", "Action=CreateNetworkInterface&SubnetId=" + e.subnet.ID + "&Description=" + huge + version, 400, "InvalidParameterValue"},
		{"huge action", "Action=" + huge + version, 400, "InvalidAction"},
		{"huge key", describe + "&" + huge + "=1", 400, "UnknownParameter"},
		{"huge pattern", describe + "&Filter.1.Name=description&Filter.1.Value.1=" + strings.Repeat("*a", 1<<19), 200, ""},
		{"10,000 filters", describe + manyFilters.String(), 400, "FilterLimitExceeded"},
		{"10,000 ids", describe + manyIDs.String(), 200, ""},
		{"body over the limit", describe + "&NextToken=" + strings.Repeat(huge, 4), 413, "RequestEntityTooLarge"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			status, got := post(t, e.handler, c.form)
			if status != c.status || got.Code != c.want {
				t.Fatalf("%d %s", status, got.Code)
			}
			if len(got.Message) > 300 {
				t.Fatalf("the message repeats %d bytes", len(got.Message))
			}
		})
	}
	for _, entry := range e.handler.Journal(0) {
		for key, value := range entry.Params {
			if len(value) > 1<<10 {
				t.Fatalf("the journal keeps %d bytes of %.20s", len(value), key)
			}
		}
	}
}

func TestMethodsAndPlaces(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	query := "/?Action=DescribeVpcs" + version
	request := func(method, target, body, kind string) *http.Request {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		return r
	}
	cases := []struct {
		name    string
		request *http.Request
		status  int
		want    string
	}{
		{"GET", request(http.MethodGet, query, "", ""), 200, ""},
		{"signed GET", request(http.MethodGet, query+"&X-Amz-Credential=AKID%2F20260101%2Fus-west-2%2Fec2%2Faws4_request&X-Amz-Signature=00", "", ""), 200, ""},
		{"POST with the query in the URL", request(http.MethodPost, query, "", "application/x-www-form-urlencoded"), 200, ""},
		{"POST of JSON", request(http.MethodPost, "/", "{}", "application/json"), 400, "UnsupportedProtocol"},
		{"PUT", request(http.MethodPut, query, "", ""), 405, "MethodNotAllowed"},
		{"DELETE", request(http.MethodDelete, query, "", ""), 405, "MethodNotAllowed"},
		{"another path", request(http.MethodGet, "/admin?Action=DescribeVpcs"+version, "", ""), 404, "InvalidAction"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if status, got := serve(t, e.handler, c.request); status != c.status || got.Code != c.want {
				t.Fatalf("%d %s: %s", status, got.Code, got.Message)
			}
		})
	}
	journal := e.handler.Journal(1)
	if journal[0].AccessKey != "AKID" || journal[0].Region != "us-west-2" {
		t.Errorf("caller of a signed query: %+v", journal[0])
	}
}

// snapshot is the body that the SDK sends for an action with every parameter that it knows.
func snapshot(t *testing.T, dir, action string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "request_snapshot", action+".request.snap"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// TestEveryParameterOfTheSDKIsKnown: of what the SDK can send for the served actions, every parameter is understood or refused by
// name; none is unknown, none ignored. The SDK's module carries a request with all of them for each action.
func TestEveryParameterOfTheSDKIsKnown(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/service/ec2").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range e.handler.Actions() {
		form := snapshot(t, strings.TrimSpace(string(dir)), action)
		if !strings.Contains(form, "Action="+action+"&") {
			t.Fatalf("%s: %q", action, form)
		}
		last := settle(t, e.handler, form)
		if last.Code == "UnknownParameter" || last.Code == "UnsupportedOperation" || last.Code == "InternalError" || strings.HasPrefix(last.Message, "Value (") && strings.Contains(last.Message, "Expecting an") {
			t.Errorf("%s: %s: %s", action, last.Code, last.Message)
		}
		if strings.Contains(form, "DryRun=true") && last.Code != "DryRunOperation" {
			t.Errorf("%s with DryRun: %s: %s", action, last.Code, last.Message)
		}
	}
}

// settle sends a form, and again without each parameter that the fake refuses by name, until it refuses none.
func settle(t *testing.T, h http.Handler, form string) failure {
	t.Helper()
	values := must(url.ParseQuery(form))
	for {
		_, got := post(t, h, values.Encode())
		name, byName := strings.CutPrefix(strings.TrimSuffix(got.Message, " is not supported by this fake"), "The parameter ")
		if got.Code != "UnsupportedOperation" || !byName {
			return got
		}
		before := len(values)
		for key := range values {
			if key == name || strings.HasPrefix(key, name+".") {
				delete(values, key)
			}
		}
		if len(values) == before {
			t.Fatalf("%s was refused but not given", name)
		}
	}
}
