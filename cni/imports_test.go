package cni_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxPlugin is the largest the plugin may be, in bytes, built with -ldflags "-s -w": it is read at each pod's start.
const maxPlugin = 4_000_000

// heavy are packages that the plugin must not contain, with what is below them.
var heavy = []string{
	"net/http", "crypto/tls", "crypto/x509", "google.golang.org/grpc", "google.golang.org/protobuf", "k8s.io",
	"sigs.k8s.io", "github.com/aws", "github.com/prometheus", "github.com/google/nftables",
}

// repository is the module, of which the plugin may see these packages only.
const repository = "github.com/vpc-cni/vpc-cni"

var ours = []string{
	repository + "/cni", repository + "/cni/cmd/aws-cni", repository + "/cni/podnet", repository + "/cni/skel", repository + "/ipamd/api",
}

func TestPluginImportsNothingHeavy(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", "./cmd/aws-cni").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dependency := range strings.FieldsSeq(string(output)) {
		for _, prefix := range heavy {
			if dependency == prefix || strings.HasPrefix(dependency, prefix+"/") {
				t.Errorf("plugin imports %s", dependency)
			}
		}
		if strings.HasPrefix(dependency, repository) && !slices.Contains(ours, dependency) {
			t.Errorf("plugin sees %s", dependency)
		}
	}
}

func TestPluginIsSmall(t *testing.T) {
	bin, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(bin, "aws-cni"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxPlugin {
		t.Errorf("plugin has %d bytes, more than %d", info.Size(), maxPlugin)
	}
}
