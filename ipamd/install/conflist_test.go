package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

func TestTheRuntimeReadsWhatIsWritten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "net.d")
	conflist := Conflist{Socket: "/run/a/cni.sock", LogFile: "/var/log/p.log", LogLevel: "debug", PortMap: true}
	wrote, err := conflist.Write(folder)
	if err != nil || !wrote {
		t.Fatalf("wrote %t: %v", wrote, err)
	}
	list, err := libcni.ConfListFromFile(filepath.Join(folder, FileName))
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, plugin := range list.Plugins {
		types = append(types, plugin.Network.Type)
	}
	if diff := cmp.Diff([]string{"aws-cni", "portmap"}, types); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
	if list.Name != "aws-cni" || list.CNIVersion != "0.4.0" || list.DisableCheck {
		t.Errorf("list: name %s, version %s, disableCheck %t", list.Name, list.CNIVersion, list.DisableCheck)
	}
	want := `{
  "cniVersion": "0.4.0",
  "name": "aws-cni",
  "plugins": [
    {
      "type": "aws-cni",
      "socket": "/run/a/cni.sock",
      "logFile": "/var/log/p.log",
      "logLevel": "debug"
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      },
      "snat": true
    }
  ]
}
`
	got, err := os.ReadFile(filepath.Join(folder, FileName))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestAnEqualFileIsLeftAloneAndAnotherIsReplacedWithoutRemains(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, FileName)
	if err := os.WriteFile(path, []byte(`{"name":"the incumbent's"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	conflist := Conflist{Socket: "/run/a/cni.sock"}
	for i, want := range []bool{true, false, false} {
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		wrote, err := conflist.Write(folder)
		if err != nil || wrote != want {
			t.Errorf("write %d: %t, %v", i, wrote, err)
		}
		if after, err := os.Stat(path); err != nil || os.SameFile(before, after) == want {
			t.Errorf("write %d: the same file: %t, %v", i, os.SameFile(before, after), err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("folder: %v, %v", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != fileMode {
		t.Errorf("mode: %v, %v", info, err)
	}
}

func TestAFolderThatCannotBeWrittenIsAnError(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Conflist{}).Write(folder); err == nil {
		t.Error("no error")
	}
	if HasPlugin(folder) {
		t.Error("a plugin in a file")
	}
}

func TestPluginsAreFiles(t *testing.T) {
	folder := t.TempDir()
	if HasPlugin(folder) || HasPortMap(folder) {
		t.Error("found in an empty folder")
	}
	if err := os.Mkdir(filepath.Join(folder, PluginName), 0o700); err != nil {
		t.Fatal(err)
	}
	if HasPlugin(folder) {
		t.Error("a folder is no plugin")
	}
	if err := os.WriteFile(filepath.Join(folder, "portmap"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if !HasPortMap(folder) {
		t.Error("portmap is there")
	}
}
