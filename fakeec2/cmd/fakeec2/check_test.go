package main

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// Books that are broken end the program, with the request after which they were. What breaks them here reaches into the model's own slice,
// as no law does.
func TestBrokenBooksEndTheProgram(t *testing.T) {
	model := vpc.New(vpc.Options{})
	n, err := model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := model.AddSubnet(vpc.Subnet{VPCID: n.ID, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.CreateNetworkInterface(time.Unix(0, 0), vpc.CreateNetworkInterfaceInput{SubnetID: s.ID}); err != nil {
		t.Fatal(err)
	}
	v := &server{World: scenario.World{Model: model}, broken: make(chan error, 1)}
	ask := func(change func(*vpc.ENI) bool) {
		v.proven(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { model.SelectENIs(change) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody))
	}
	ask(func(*vpc.ENI) bool { return true })
	if len(v.broken) != 0 {
		t.Fatalf("sound books: %v", <-v.broken)
	}
	for range 2 {
		ask(func(e *vpc.ENI) bool { e.VPCID = "vpc-none"; return true })
	}
	if err := v.endAtBreak(t.Context()); err == nil || !strings.Contains(err.Error(), "books are broken after POST /") {
		t.Errorf("broken books: %v", err)
	}
}
