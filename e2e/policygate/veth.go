package policygate

import (
	"crypto/sha1"
	"encoding/hex"
)

// VethPrefix begins the name of every pod's host link under a VPC CNI.
const VethPrefix = "eni"

// hashDigits is how much of the hash fits beside a prefix of four into IFNAMSIZ-1 (15) bytes. Source: Calico's
// VethNameForWorkload.
const hashDigits = 11

// VethName is the host link of a pod. Policy engine and CNI each compute it, and so agree without talking to each other.
func VethName(namespace, pod string) string {
	sum := sha1.Sum([]byte(namespace + "." + pod))
	return VethPrefix + hex.EncodeToString(sum[:])[:hashDigits]
}
