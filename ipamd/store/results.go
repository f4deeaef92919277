package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// maxResult bounds one cached result on reading, in bytes; most of one is the network configuration.
const maxResult = 1 << 20

// maxNamed bounds how many unreadable files an error names: it becomes one line of the log.
const maxNamed = 5

// Results is what the container runtime keeps of the attachments that it has added: libcni writes a file for each after its
// ADD and removes it before its DEL. It says what a lost state said, but for who is still alive.
type Results struct {
	Dir     string // libcni's cache folder
	Network string // name of the network configuration
}

// cached is one file. Source: cachedInfo in containernetworking/cni, libcni/api.go; args as runtimes of Kubernetes give them.
type cached struct {
	Kind        string      `json:"kind"`
	ContainerID string      `json:"containerId"`
	IfName      string      `json:"ifName"`
	NetworkName string      `json:"networkName"`
	NetNS       string      `json:"netns"`
	Args        [][2]string `json:"cniArgs"`
	Result      struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	} `json:"result"`
}

// Assignments gives the cached attachments that are believed as assignments that were never told to be done, oldest first:
// whether their pods live is for the kernel to say. Of several believed ones with one address the youngest counts. A missing
// folder is an empty one; the error names the first files that could not be read and counts the others, beside what could.
func (r Results) Assignments(believed func(pool.Assignment) bool) ([]pool.Assignment, error) {
	folder := filepath.Join(r.Dir, "results")
	entries, err := os.ReadDir(folder)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	var list []pool.Assignment
	var bad []error
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !strings.HasPrefix(entry.Name(), r.Network+"-") {
			continue
		}
		a, err := readResult(filepath.Join(folder, entry.Name()))
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("read cached result %s: %w", entry.Name(), err))
		case a.Key.Network == r.Network && believed(a): // another network's name may begin the same
			list = append(list, a)
		}
	}
	slices.SortStableFunc(list, func(a, b pool.Assignment) int { return b.Since.Compare(a.Since) })
	seen := make(map[netip.Addr]bool, len(list))
	list = slices.DeleteFunc(list, func(a pool.Assignment) bool {
		older := seen[a.Addr]
		seen[a.Addr] = true
		return older
	})
	slices.Reverse(list)
	if more := len(bad) - maxNamed; more > 0 {
		bad = append(bad[:maxNamed], fmt.Errorf("and %d more", more))
	}
	return list, errors.Join(bad...)
}

func readResult(path string) (pool.Assignment, error) {
	file, err := os.Open(path)
	if err != nil {
		return pool.Assignment{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return pool.Assignment{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxResult))
	if err != nil {
		return pool.Assignment{}, err
	}
	var c cached
	if err := json.Unmarshal(data, &c); err != nil {
		return pool.Assignment{}, err
	}
	if c.Kind != "cniCacheV1" || c.ContainerID == "" || c.IfName == "" || len(c.Result.IPs) == 0 {
		return pool.Assignment{}, errors.New("it is not what libcni writes, or has no address")
	}
	a := pool.Assignment{
		Key:  pool.Key{Network: c.NetworkName, Sandbox: c.ContainerID, IfName: c.IfName},
		Addr: c.Result.IPs[0].Address.Addr().Unmap(), NetNS: c.NetNS, Since: info.ModTime(),
	}
	for _, arg := range c.Args {
		switch arg[0] {
		case "K8S_POD_NAMESPACE":
			a.Pod.Namespace = arg[1]
		case "K8S_POD_NAME":
			a.Pod.Name = arg[1]
		case "K8S_POD_UID":
			a.Pod.UID = arg[1]
		}
	}
	return a, nil
}
