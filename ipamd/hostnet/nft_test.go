package hostnet

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("differs from %s (-want +got):\n%s", path, diff)
	}
}

func TestNodeWithTwoENIsLooksLikeTheGoldenText(t *testing.T) {
	l := newLab(t, labOptions{rpFilter: 1})
	l.pod(podA)
	l.pod(podB)
	h := l.host(settings())
	l.apply(h, wanted())
	golden(t, "two-enis.txt", l.dump(h))
	l.needsNFT106()
	golden(t, "two-enis.nft", l.nft("", "list", "table", "ip", tableName))
}

// needsNFT106 skips a test that goes by the exact words of nft's listing.
func (l *lab) needsNFT106() {
	l.tb.Helper()
	if version := l.nft("", "--version"); !strings.HasPrefix(version, "nftables v1.0.6") {
		l.tb.Skip("the words of the listing are those of nft 1.0.6 (Debian 12), here is ", version)
	}
}

// The text of a statement is its identity, so it must say what its expressions do: nft, which sees only the expressions,
// has to list the same text.
func TestStatementsSayWhatTheyCompileTo(t *testing.T) {
	comment := regexp.MustCompile(` comment "[^"]*"$`)
	for _, cfg := range variants() {
		l := newLab(t, labOptions{})
		l.needsNFT106()
		l.apply(l.host(cfg), wanted())
		var listed []string
		for _, line := range strings.Split(l.nft("", "list", "table", "ip", tableName), "\n") {
			listed = append(listed, comment.ReplaceAllString(strings.TrimSpace(line), ""))
		}
		all := strings.Join(listed, "\n") + "\n"
		for _, c := range Desired(cfg, wanted(), linkNames()).NFT.Chains {
			for _, r := range c.Rules {
				if !strings.Contains(all, "\n"+r.Text+"\n") {
					t.Errorf("chain %s: nft does not list %q:\n%s", c.Name, r.Text, all)
				}
			}
		}
	}
}

// variants are the settings that change the rules.
func variants() []Config {
	var all []Config
	for _, external := range []bool{false, true} {
		for _, nodePort := range []bool{false, true} {
			cfg := settings()
			cfg.ExternalSNAT, cfg.NodePort = external, nodePort
			all = append(all, cfg)
		}
	}
	return all
}

func TestOneMoreAddressIsOneTransactionThatTouchesNothingElse(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.host(settings())
	want := wanted()
	l.apply(h, want)
	before, handles := l.generation(), l.nft("", "-a", "list", "table", "ip", tableName)

	want.ENIs[1].Addresses = addrs(podB, podC, "10.0.2.14")
	report := l.apply(h, want)
	if got := l.generation() - before; got != 1 {
		t.Errorf("%d transactions, want 1", got)
	}
	if diff := cmp.Diff(addrs(podA, podB, podC, "10.0.2.14"), report.Addresses, compareAddrs); diff != "" {
		t.Error(diff)
	}
	elements := regexp.MustCompile(`(?s)(map eni_of|set own) \{.*?\n\t\}`)
	after := l.nft("", "-a", "list", "table", "ip", tableName)
	if diff := cmp.Diff(elements.ReplaceAllString(handles, ""), elements.ReplaceAllString(after, "")); diff != "" {
		t.Errorf("something else was rewritten:\n%s", diff)
	}
	l.apply(h, want)
	if got := l.generation() - before; got != 1 {
		t.Errorf("an Apply without a change made %d transactions", got-1)
	}
}

func (l *lab) generation() uint32 {
	l.tb.Helper()
	var n uint32
	l.must(l.node.Do(func() error {
		var err error
		n, err = generation()
		return err
	}))
	return n
}

func TestNewCIDRIsAddedInPlace(t *testing.T) {
	l := newLab(t, labOptions{})
	h := l.host(settings())
	want := wanted()
	l.apply(h, want)
	before := l.generation()
	want.VPCCIDRs = prefixes("10.0.0.0/16", "10.1.0.0/16", "100.64.0.0/10")
	l.apply(h, want)
	if got := l.generation() - before; got != 1 {
		t.Errorf("%d transactions, want 1", got)
	}
	if dump := l.dump(h); !strings.Contains(dump, "\t\t10.0.0.0/16\n\t\t10.1.0.0/16\n\t\t100.64.0.0/10\n") {
		t.Errorf("no such prefixes in\n%s", dump)
	}
	want.VPCCIDRs = prefixes("10.0.0.0/16")
	l.apply(h, want)
	if diff := cmp.Diff(Desired(settings(), want, linkNames()).String(), l.dump(h)); diff != "" {
		t.Error(diff)
	}
}
