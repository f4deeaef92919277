// Package sandbox is a tiny kubelet and container runtime for one node: it makes a network namespace for each pod that is
// bound to its node, has the real CNI plugin wire it, and reports the pod to the API as late as a real kubelet does.
//
// It owns the pods' namespaces and status. It runs the plugin through libcni with the arguments that containerd passes,
// retries as kubelet does, and knows nothing of VPCs, addresses or policy. A container is a moment, not a process: from
// "container_started" on, the harness may use the pod's network. Not simulated: images, volumes, probes, restarts of
// containers, a restart of this program (a new one does not know the pods of the old one).
//
// Start with Agent in agent.go; lifecycle.go is the life of one pod, plugin.go what is exec'd, control.go what tests may
// ask for.
package sandbox
