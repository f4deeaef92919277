package policygate

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Keys that a reader trusts before the CNI's own, and the CNI's own. Source: Calico's conversion of pods to workload
// endpoints (libcalico-go, lib/backend/k8s/conversion).
const (
	calicoPodIPs = "cni.projectcalico.org/podIPs" // comma-separated CIDRs
	calicoPodIP  = "cni.projectcalico.org/podIP"  // one CIDR
	AWSPodIPs    = "vpc.amazonaws.com/pod-ips"    // comma-separated addresses or CIDRs
)

// Reader takes a pod's addresses from its API object, as Calico does.
type Reader struct {
	// Keys are the annotations that are read after the status and Calico's own keys, in this order. None: a reader that
	// knows only what kubelet and Calico wrote.
	Keys []string
}

// Addresses gives the addresses that the pod's object names, from the most trusted source that has any: status.podIPs,
// status.podIP, Calico's keys, then Keys. It is nil for a pod whose object names none yet. One bad item fails the pod.
func (r Reader) Addresses(pod *corev1.Pod) ([]netip.Prefix, error) {
	source, items := r.items(pod)
	addresses := make([]netip.Prefix, 0, len(items))
	for _, item := range items {
		address, err := parseAddress(item)
		if err != nil {
			return nil, fmt.Errorf("read addresses of pod %s/%s from %s: %w", pod.Namespace, pod.Name, source, err)
		}
		addresses = append(addresses, address)
	}
	if len(addresses) == 0 {
		return nil, nil
	}
	return addresses, nil
}

func (r Reader) items(pod *corev1.Pod) (source string, items []string) {
	if ips := pod.Status.PodIPs; len(ips) != 0 {
		for _, ip := range ips {
			items = append(items, ip.IP)
		}
		return "status.podIPs", items
	}
	if ip := pod.Status.PodIP; ip != "" {
		return "status.podIP", []string{ip}
	}
	if value := pod.Annotations[calicoPodIPs]; value != "" {
		return calicoPodIPs, strings.Split(value, ",")
	}
	if value := pod.Annotations[calicoPodIP]; value != "" {
		return calicoPodIP, []string{value}
	}
	for _, key := range r.Keys {
		if value := pod.Annotations[key]; value != "" {
			return key, strings.Split(value, ",")
		}
	}
	return "", nil
}

// Finished tells whether the pod's network is over: its phase says so, or it is being deleted and the CNI has said so by
// an empty value. A key that is absent says nothing, and neither does an empty value on a pod that is not being deleted.
func (r Reader) Finished(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		for _, key := range append([]string{calicoPodIP}, r.Keys...) {
			if value, present := pod.Annotations[key]; present && value == "" {
				return true
			}
		}
	}
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// parseAddress reads an address or a CIDR. Spaces are not forgiven, as Calico's parser does not forgive them.
func parseAddress(item string) (netip.Prefix, error) {
	if strings.Contains(item, "/") {
		prefix, err := netip.ParsePrefix(item)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("parse CIDR: %w", err)
		}
		return prefix.Masked(), nil
	}
	address, err := netip.ParseAddr(item)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("parse address: %w", err)
	}
	if address.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("parse address %q: a zone is not part of a pod's address", item)
	}
	return netip.PrefixFrom(address, address.BitLen()), nil
}
