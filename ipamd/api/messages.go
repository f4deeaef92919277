// Package api is the conversation between the CNI plugin and the node daemon: its messages, a client and a server.
//
// It owns the wire (length-delimited JSON over a unix stream) and the constants that both programs need. It never touches
// the kernel, EC2 or Kubernetes. It imports the standard library only, because the plugin is exec'd for every pod and pays
// for each import. Start reading here, then client.go and server.go.
package api

import "net/netip"

// Version is the version of the messages. A server accepts Version and Version-1, so that a plugin and a daemon of
// neighbouring releases work together during a rollout; unknown fields are ignored on both sides.
const Version = 1

// DefaultSocket is where the daemon listens unless the network configuration names another path.
const DefaultSocket = "/var/run/aws-node/cni.sock"

// RouteProtocol marks every route that this project writes (rtnetlink's rtm_protocol). 80 is Felix's, 2 to 4 are the
// kernel's and the administrator's, 186 to 192 are routing daemons'.
const RouteProtocol = 201

// PodsTable is the routing table that holds one /32 route for each pod. It stays clear of the incumbent's tables (2 to
// 15, 101 to 220 and 10000 upwards) and of Felix's (1 to 250).
const PodsTable = 7000

// Attachment is CNI's key of one network attachment: two calls with equal attachments mean the same sandbox interface.
type Attachment struct {
	Network     string `json:"network"`     // name of the network configuration
	ContainerID string `json:"containerID"` // sandbox id
	IfName      string `json:"ifName"`      // name of the interface inside the sandbox
}

// Pod is what the runtime says of the pod that a sandbox belongs to. UID is empty with runtimes that do not pass
// K8S_POD_UID.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// AssignRequest asks for an address. The daemon may take up to DeadlineMS milliseconds (at most 60,000) to find one.
type AssignRequest struct {
	Attachment
	Pod        Pod    `json:"pod"`
	NetNS      string `json:"netns"`
	DeadlineMS int64  `json:"deadlineMS"`
}

// PodNetwork is the complete recipe for one pod's interface: the plugin carries it out and adds no policy of its own.
type PodNetwork struct {
	HostVeth string         `json:"hostVeth"`         // name of the host's end
	MTU      int            `json:"mtu"`              // bytes, both ends
	Addr     netip.Prefix   `json:"addr"`             // the pod's address with its mask (/32)
	Gateway  netip.Addr     `json:"gateway"`          // link-local next hop inside the pod; a permanent neighbour entry
	Table    int            `json:"table"`            // the host's routing table for the pod's route
	Protocol int            `json:"protocol"`         // rtm_protocol of that route
	ENI      string         `json:"eni,omitempty"`    // for people and logs
	Device   int            `json:"device"`           // device index of that ENI, for people and logs
	Routes   []netip.Prefix `json:"routes,omitempty"` // destinations beyond the default route; none today
	Repeat   bool           `json:"repeat,omitempty"` // the attachment was done before: a live pod, whose veth a failed repeat must leave alone
}

// DoneRequest says that the recipe has been carried out. Until it is answered the assignment belongs to the connection.
type DoneRequest struct {
	Attachment
}

// ReleaseRequest gives an address back. It names the pod for the log only: the attachment decides.
type ReleaseRequest struct {
	Attachment
	Pod Pod `json:"pod"`
}

// GCRequest frees every attachment of Network that is not in Valid.
type GCRequest struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"`
}

// GCReply says which attachments were freed.
type GCReply struct {
	Freed []Attachment `json:"freed"`
}

// Error is a refusal. Code is the CNI error code that the plugin prints (11 is "try again later", 50 "plugin not
// available"; codes from 100 on are this project's own, see the constants in errors.go).
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}
