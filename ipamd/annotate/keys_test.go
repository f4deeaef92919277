package annotate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeysParsesList(t *testing.T) {
	for list, want := range map[string][]string{
		"":                          {DefaultKey},
		"  ":                        {DefaultKey},
		"vpc.amazonaws.com/pod-ips": {"vpc.amazonaws.com/pod-ips"},
		"b.example/ip, a.example/x": {"b.example/ip", "a.example/x"},
		"plain":                     {"plain"},
		"cni.projectcalico.org/podIP,cni.projectcalico.org/podIPs": {"cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs"},
	} {
		got, err := Keys(list)
		if err != nil {
			t.Errorf("Keys(%q): %v", list, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Keys(%q) (-want +got):\n%s", list, diff)
		}
	}
}

func TestKeysNamesEveryFault(t *testing.T) {
	list := "a.example/ip,, a.example/ip ,-bad/x,a/b/c,kubernetes.io/config.mirror," + strings.Repeat("k", 64)
	_, err := Keys(list)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`item 2, "": empty`, `item 3, "a.example/ip": named twice`, `item 4, "-bad/x"`, `item 5, "a/b/c"`,
		`item 6, "kubernetes.io/config.mirror": reserved`, `item 7, "kkk`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

// FuzzKeys: whatever is accepted is what the API server accepts, has no doubles, and is stable when written out again.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"", "a/b", "a/b,a/b", "A.example/Ip", ",", "kubernetes.io/config.hash", "ä/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		keys, err := Keys(list)
		if err != nil {
			return
		}
		if len(keys) == 0 {
			t.Fatal("no keys and no error")
		}
		again, err := Keys(strings.Join(keys, ","))
		if err != nil {
			t.Fatalf("own output is refused: %v", err)
		}
		if diff := cmp.Diff(keys, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
