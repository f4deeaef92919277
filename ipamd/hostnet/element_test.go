package hostnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

func TestElementsComeBackAsTheyWereWritten(t *testing.T) {
	for typ, keys := range map[SetType][]string{
		SetPrefix: {"0.0.0.0/5", "10.0.0.0/16", "10.1.0.0/16", "10.2.0.0/17", "100.64.0.0/10", "192.168.3.4/32", "224.0.0.0/3"},
		// Verdicts come back in another form than they go, which the tests against the kernel see; here it is the keys.
		SetAddr:    {"0.0.0.0", "10.0.1.10", "255.255.255.255"},
		SetAddrEnd: {"0.0.0.0", "10.0.1.10", "255.255.255.255"},
		SetLinkEnd: {`"a b"`, `"enp0s31f6.12345"`, `"eth0"`},
		SetMarkEnd: {"0x00000002", "0x0000007f"},
	} {
		var want []Element
		for _, k := range keys {
			want = append(want, Element{Key: k})
		}
		encoded, err := typ.encode(want)
		if err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		rand.Shuffle(len(encoded), func(i, j int) { encoded[i], encoded[j] = encoded[j], encoded[i] })
		set := Set{Type: typ, Elements: typ.decode(encoded)}
		for i := range set.Elements {
			set.Elements[i].Goto = ""
		}
		set.sort()
		if diff := cmp.Diff(want, set.Elements); diff != "" {
			t.Errorf("%s: %s", typ, diff)
		}
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	for typ, key := range map[SetType]string{
		SetPrefix: "10.0.0.0", SetAddrEnd: "10.0.0.0/8", SetAddr: "10.0.0.0/8", SetLinkEnd: `"a-name-that-is-too-long"`, SetMarkEnd: "two", setUnknown: "x",
	} {
		if _, err := typ.encode([]Element{{Key: key}}); err == nil {
			t.Errorf("%s: no error for %s", typ, key)
		}
	}
}

func TestForeignElementsDifferFromEverythingWanted(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.4")
	got := SetPrefix.decode([]nftables.SetElement{{Key: b.AsSlice(), IntervalEnd: true}, {Key: a.AsSlice()}})
	if diff := cmp.Diff([]Element{{Key: "10.0.0.1 to before 10.0.0.4"}}, got); diff != "" {
		t.Error(diff)
	}
	if got := verdictChain(nil); got != "unknown verdict" {
		t.Errorf("no verdict reads as %q", got)
	}
	if got := SetAddrEnd.text([]byte{1, 2}); got != "0102" {
		t.Errorf("a short key reads as %q", got)
	}
}

func TestInsideCoversTheGivenPrefixesAndNothingElse(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var given []netip.Prefix
		for range random.IntN(8) {
			addr := netip.AddrFrom4([4]byte{10, byte(random.IntN(4)), byte(random.IntN(256)), 0})
			given = append(given, netip.PrefixFrom(addr, 8+random.IntN(17)))
		}
		kept := inside(pool.HostState{VPCCIDRs: given})
		contains := func(list []netip.Prefix, a netip.Addr) bool {
			return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Masked().Contains(a) })
		}
		for range 200 {
			a := netip.AddrFrom4([4]byte{byte(9 + random.IntN(3)), byte(random.IntN(5)), byte(random.IntN(256)), 1})
			if contains(given, a) != contains(kept, a) {
				t.Fatalf("%s: in %v is %v, in %v is %v", a, given, contains(given, a), kept, contains(kept, a))
			}
		}
		for i := range kept {
			for j := range kept {
				if i != j && kept[i].Overlaps(kept[j]) {
					t.Fatalf("%v overlap in %v, which the kernel refuses", kept[i], kept)
				}
			}
		}
	}
}

func TestDesiredLeavesOutWhatCannotBe(t *testing.T) {
	want := wanted()
	want.ENIs = append(want.ENIs,
		pool.HostENI{ID: "eni-far", Device: maxDevice + 1, Primary: netip.MustParseAddr("10.0.8.8"), SubnetCIDR: netip.MustParsePrefix("10.0.8.0/24")},
		pool.HostENI{ID: "eni-unplugged", Device: 2, Primary: netip.MustParseAddr("10.0.9.9"), SubnetCIDR: netip.MustParsePrefix("10.0.9.0/24")})
	want.ENIs[1].Addresses = append(addrs("2001:db8::1"), want.ENIs[1].Addresses...)
	names := linkNames()
	want.ENIs = append(want.ENIs, pool.HostENI{ID: "eni-v6", Device: 3, Primary: netip.MustParseAddr("10.0.9.9"), SubnetCIDR: netip.MustParsePrefix("2001:db8::/64")})
	names["eni-far"], names["eni-v6"] = "eth200", "eth3"
	got, plain := Desired(settings(), want, names).String(), Desired(settings(), wanted(), linkNames()).String()
	if diff := cmp.Diff(plain, got); diff != "" {
		t.Error(diff)
	}
	if blind := Desired(settings(), pool.HostState{}, nil).String(); strings.Contains(blind, "snat") {
		t.Errorf("translation without a CIDR:\n%s", blind)
	}
}

func TestLinksAreFoundByMAC(t *testing.T) {
	const mac = "02:00:00:00:00:01"
	at := func(name string, index int, addr string) presentLink {
		l := presentLink{name: name, index: index, mac: mac}
		if addr != "" {
			l.addrs = []presentAddr{{prefix: netip.MustParsePrefix(addr + "/24")}}
		}
		return l
	}
	vlan := at("eth0.5", 1, "")
	vlan.stacked = true
	eni := []pool.HostENI{{ID: "eni-1", MAC: strings.ToUpper(mac), Primary: netip.MustParseAddr("10.0.0.4")}}
	for want, present := range map[string][]presentLink{
		"eth0": {at("br0", 9, ""), at("eth0", 2, ""), vlan},
		"br0":  {at("eth0", 2, ""), at("br0", 9, "10.0.0.4")},
		"":     {vlan},
	} {
		if got := matchLinks(eni, present)["eni-1"]; got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	if got := matchLinks([]pool.HostENI{{ID: "eni-2", MAC: "nonsense"}}, nil); len(got) != 0 {
		t.Errorf("a bad MAC found %v", got)
	}
}

func TestStatementSurvivesTheKernel(t *testing.T) {
	for _, s := range []Statement{{Text: "a"}, {Text: "ip saddr vmap @m", Why: "because"}, {Text: strings.Repeat("x", 200), Why: strings.Repeat("y", 100)}} {
		data := s.userData()
		if len(data) > userDataMax {
			t.Errorf("%d bytes of user data", len(data))
		}
		if got, err := statementOf(data); err != nil || got != s.Text {
			t.Errorf("%q came back as %q, %v", s.Text, got, err)
		}
	}
	for _, cfg := range variants() {
		for _, c := range Desired(cfg, wanted(), linkNames()).NFT.Chains {
			for _, r := range c.Rules {
				if !strings.Contains(string(r.userData()), r.Why) {
					t.Errorf("no room for the comment of %q", r.Text)
				}
			}
		}
	}
}

func FuzzUserData(f *testing.F) {
	f.Add(Statement{Text: "ip saddr vmap @eni_of", Why: "why"}.userData())
	f.Add([]byte{0, 255, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := statementOf(data)
		if err == nil && !strings.Contains(string(data), compiled+text) {
			t.Errorf("%q from nowhere", text)
		}
	})
}

func FuzzVerdict(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 0xff, 0xff, 0xff, 0xfc, 9, 0, 2, 0, 'a', 'b', 'c', 'd', 0, 0, 0, 0})
	f.Add([]byte{3, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if chain := verdictChain(data); !strings.Contains(string(data), chain) && chain != "unknown verdict" {
			t.Errorf("%q from nowhere", chain)
		}
	})
}

func FuzzIntervals(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0, 0, 10, 1, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var found []nftables.SetElement
		starts := 0
		for ; len(data) >= 5; data = data[5:] {
			end := data[4]&1 == 1
			if !end {
				starts++
			}
			found = append(found, nftables.SetElement{Key: data[:4], IntervalEnd: end})
		}
		if got := SetPrefix.decode(found); len(got) != starts {
			t.Errorf("%d elements from %d starts: %v", len(got), starts, fmt.Sprint(got))
		}
	})
}
