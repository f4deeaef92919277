// Package eksnode is an EKS node with the CNI that EKS ships (the incumbent), unmodified, on the simulated VPC: what an AMI, the
// DaemonSet's containers and kubelet's runtime do there, and nothing else.
//
// It owns a node's file tree and mount namespace (the incumbent's paths are fixed), the agent's process and environment, the
// incumbent's objects in the API server, and the runtime's calls of the plugin through libcni. It imports nothing of the
// incumbent: its programs are built from the module e2e/incumbent (e2e/assets), which pins it. The VPC, the API server and the
// namespaces are cluster/netns's. It must run inside netlab.Isolate. Nothing of it touches the machine's own /run, /var, /opt or
// /etc, and nothing of it outlives the program.
//
// Start with Join, then Cluster.Node; root.go has the file tree, sandbox.go the pods.
package eksnode
