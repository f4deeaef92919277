package annotate

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeysParsesList(t *testing.T) {
	calico := []string{"cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs"}
	list := []string{"cni.projectcalico.org/podIPs"}
	tests := []struct {
		text          string
		names, joined []string
	}{
		{"", []string{DefaultKey}, nil},
		{"  ", []string{DefaultKey}, nil},
		{"vpc.amazonaws.com/pod-ips", []string{DefaultKey}, nil},
		{"aws", []string{DefaultKey}, nil},
		{"aws:all", []string{DefaultKey}, []string{DefaultKey}},
		{"neutral", []string{NeutralKey}, nil},
		{"neutral:all,aws:first", []string{NeutralKey, DefaultKey}, []string{NeutralKey}},
		{"b.example/ip, a.example/x", []string{"b.example/ip", "a.example/x"}, nil},
		{"b.example/ip:all, a.example/x:first", []string{"b.example/ip", "a.example/x"}, []string{"b.example/ip"}},
		{"plain", []string{"plain"}, nil},
		{"Example.org/Pod_IP", []string{"Example.org/Pod_IP"}, nil},
		{"calico", calico, list},
		{"cni.projectcalico.org/podIP", calico[:1], nil},
		{"cni.projectcalico.org/podIP:first", calico[:1], nil},
		{"cni.projectcalico.org/podIP,cni.projectcalico.org/podIPs", calico, list},
		{"cni.projectcalico.org/podIPs:all,cni.projectcalico.org/podIP", []string{calico[1], calico[0]}, list},
		{"calico,vpc.amazonaws.com/pod-ips,example.org/ips:all", append(slices.Clone(calico), DefaultKey, "example.org/ips"), append(slices.Clone(list), "example.org/ips")},
	}
	for _, test := range tests {
		names, joined, err := Keys(test.text)
		if err != nil {
			t.Errorf("Keys(%q): %v", test.text, err)
		}
		if diff := cmp.Diff([][]string{test.names, test.joined}, [][]string{names, joined}); diff != "" {
			t.Errorf("Keys(%q) (-want +got):\n%s", test.text, diff)
		}
	}
}

// Each refusal names the item, what is wrong with it and what to write instead.
func TestKeysNamesEveryFault(t *testing.T) {
	tests := map[string][]string{
		"a.example/ip,, a.example/ip ,-bad/x,a/b/c,kubernetes.io/config.mirror," + strings.Repeat("k", 64): {
			`item 2, "": empty`, `item 3, "a.example/ip": a.example/ip is named twice: leave one out`, `item 4, "-bad/x": not an annotation key`,
			`item 5, "a/b/c"`, `item 6, "kubernetes.io/config.mirror": reserved for Kubernetes: choose a key of your own`, `item 7, "kkk`,
		},
		"cni.projectcalico.org/podIPs": {
			`"cni.projectcalico.org/podIPs" alone: Calico looks only at cni.projectcalico.org/podIP for a pod's address to be there`, "name the preset calico",
		},
		"aws,cni.projectcalico.org/podIPs:all":                           {"Calico looks only at"},
		"cni.projectcalico.org/podIP:all":                                {"Calico reads one address there", `leave ":all" out`},
		"calico,cni.projectcalico.org/podIPs":                            {`item 2, "cni.projectcalico.org/podIPs": cni.projectcalico.org/podIPs is named twice`},
		"calico:all":                                                     {"the preset calico has its forms already"},
		"cni.projectcalico.org/podIP,cni.projectcalico.org/podIPs:first": {"Calico reads all of a pod's addresses there"},
		"cni.projectcalico.org/ipAddrs":                                  {"an instruction to Calico"},
		"example.org/ip:list":                                            {`the form "list" is unknown: write ":first"`},
		"example.org/ip:":                                                {`the form "" is unknown`},
		"example.org/ip:all:first":                                       {`the form "all:first" is unknown`},
		"aws,vpc.amazonaws.com/pod-ips:all":                              {"named twice"},
		"calcio":                                                         {"looks like the preset calico"},
		"Calico":                                                         {"looks like the preset calico"},
		"neutra,awz":                                                     {"looks like the preset neutral", "looks like the preset aws"},
		"node.kubernetes.io/ip,x.k8s.io/ip":                              {"item 1", "item 2", "reserved for Kubernetes"},
		"k8s.v1.cni.cncf.io/network-status":                              {"whose values are JSON"},
		"vpc.amazonaws.com/pod-eni":                                      {"reserved for Amazon's controllers"},
		"vpc-cni.github.io/pod-ip":                                       {"not the neutral key, which is vpc-cni.github.io/pod-ips"},
		"a/1,a/2,a/3,a/4,a/5,a/6,calico,a/7":                             {"9 keys: at most 8"},
		"example.org/":                                                   {"not an annotation key"},
		"/ip":                                                            {"not an annotation key"},
		"example.org/ip,":                                                {`item 2, "": empty`},
	}
	for text, wants := range tests {
		names, joined, err := Keys(text)
		if err == nil || names != nil || joined != nil {
			t.Errorf("Keys(%q) gives %v, %v, %v", text, names, joined, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Keys(%q): error lacks %q:\n%v", text, want, err)
			}
		}
	}
}

// FuzzKeys: whatever is accepted is what the API server accepts, has no doubles, is stable when written out again, and never
// has Calico's list without the key that Calico looks at.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"", "a/b", "a/b,a/b", "A.example/Ip", ",", "kubernetes.io/config.hash", "ä/b", "calico,aws:all", "neutral:first", "a/b:all"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, joined, err := Keys(list)
		if err != nil {
			return
		}
		if len(names) == 0 {
			t.Fatal("no keys and no error")
		}
		items := slices.Clone(names)
		for i, name := range items {
			if slices.Contains(joined, name) {
				items[i] += ":all"
			}
		}
		if slices.Contains(names, calicoListKey) && !slices.Contains(names, calicoKey) {
			t.Fatal("Calico's list alone")
		}
		namesAgain, joinedAgain, err := Keys(strings.Join(items, ","))
		if err != nil {
			t.Fatalf("own output is refused: %v", err)
		}
		if diff := cmp.Diff([][]string{names, joined}, [][]string{namesAgain, joinedAgain}); diff != "" {
			t.Fatal(diff)
		}
	})
}
