// Package policygate is a default-deny policy agent for one node: it lets a pod's traffic pass once it has learnt the
// pod's address from the API, and drops it until then.
//
// It stands for the policy engines that run beside a CNI which is not their own (Calico in policy-only mode is the model),
// and reads pods exactly as they do. It owns one nftables table in the namespace it runs in and nothing else; it never asks
// the CNI, never looks at the kernel's routes, and knows no policy beyond "known workload". Start with Gate in gate.go;
// workload.go has the reading rules, firewall.go the table.
package policygate
