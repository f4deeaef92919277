package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// incumbentVersion is the only version of the incumbent's file that there has been.
const incumbentVersion = "vpc-cni-ipam/1"

// Incumbent is the file in which the incumbent keeps its allocations. It is read as it is and never written: whoever goes
// back to the incumbent finds what it left.
type Incumbent struct {
	fs   FS
	path string
}

// NewIncumbent names the file at path.
func NewIncumbent(fsys FS, path string) Incumbent { return Incumbent{fs: fsys, path: path} }

// Path is where the file is.
func (i Incumbent) Path() string { return i.path }

// incumbentDocument is the file. There is no pod UID in it, no cooldown, and not which boot it belongs to.
type incumbentDocument struct {
	Version     string `json:"version"`
	Allocations []struct {
		Network     string     `json:"networkName"`
		ContainerID string     `json:"containerID"`
		IfName      string     `json:"ifName"`
		IPv4        netip.Addr `json:"ipv4"`
		Stamp       int64      `json:"allocationTimestamp"` // nanoseconds since 1970
		Metadata    struct {
			Namespace string `json:"k8sPodNamespace"`
			Name      string `json:"k8sPodName"`
		} `json:"metadata"`
	} `json:"allocations"`
}

// Assignments gives what the file says as assignments that were never told to be done: whether their pods live is for the
// kernel to say. Entries without an IPv4 address are left out. A missing file has none.
func (i Incumbent) Assignments() ([]pool.Assignment, error) {
	data, err := i.fs.ReadFile(i.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the incumbent's allocations: %w", err)
	}
	var doc incumbentDocument
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode the incumbent's allocations in %s: %w", i.path, err)
	}
	if doc.Version != incumbentVersion {
		return nil, fmt.Errorf("decode the incumbent's allocations in %s: version %q is not %q", i.path, doc.Version, incumbentVersion)
	}
	var list []pool.Assignment
	for _, a := range doc.Allocations {
		if !a.IPv4.Is4() || a.ContainerID == "" {
			continue
		}
		list = append(list, pool.Assignment{
			Key:  pool.Key{Network: a.Network, Sandbox: a.ContainerID, IfName: a.IfName},
			Pod:  pool.Pod{Namespace: a.Metadata.Namespace, Name: a.Metadata.Name},
			Addr: a.IPv4, Since: time.Unix(0, a.Stamp).UTC(),
		})
	}
	return list, nil
}
