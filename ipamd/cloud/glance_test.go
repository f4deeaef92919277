package cloud

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// metadataLag is longer than what the metadata may stay behind.
const metadataLag = time.Minute

// A node at rest is told so without a call to EC2; whatever happened to its addresses makes EC2 worth reading.
func TestChanged(t *testing.T) {
	w := newWorld(t, Options{})
	expect := func(want bool, when string) {
		t.Helper()
		before := len(w.api.Journal(0))
		if got := w.cloud.Changed(t.Context()); got != want {
			t.Errorf("%s: changed %t", when, got)
		}
		if calls := len(w.api.Journal(0)) - before; calls > 0 {
			t.Errorf("%s: %d calls to EC2", when, calls)
		}
	}
	expect(true, "before the first reading")
	primary := w.observe().ENIs[0].ID
	w.pass(metadataLag)
	expect(false, "after the first reading")

	got := w.do(pool.AssignAddresses{ENI: primary, Count: 2})
	expect(true, "after an action")
	w.observe()
	w.pass(metadataLag)
	expect(true, "once the metadata show what the reading showed: they were behind it")
	w.observe()
	expect(false, "after a reading with metadata that keep step")

	stranger := w.connect(Options{})
	if _, err := stranger.Do(t.Context(), pool.UnassignAddresses{ENI: primary, Addresses: pool.NewAddrs(got.Addresses[:1])}); err != nil {
		t.Fatal(err)
	}
	w.pass(metadataLag)
	expect(true, "after somebody else took an address away")
	w.observe()
	expect(false, "after a reading of that")

	if _, err := w.vpc.AddCIDR(w.instance.VPCID, netip.MustParsePrefix("10.64.0.0/16")); err != nil {
		t.Fatal(err)
	}
	expect(true, "after the VPC gained a CIDR")
	w.observe()
	expect(false, "after a reading of the CIDR")

	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) }))
	defer broken.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", broken.URL)
	blind, err := New(t.Context(), Options{Now: w.time})
	if err != nil {
		t.Fatal(err)
	}
	w.cloud.imds = blind.imds
	expect(true, "while the metadata cannot be read")
}
