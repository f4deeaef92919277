package eksnode_test

import (
	"slices"
)

// customNetworking: pods are in the subnet that an ENIConfig names, not in their node's.
func (w *world) customNetworking() {
	n := w.node(7, map[string]string{"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "true"})
	primary := n.enis()[0]
	state, err := w.State(w.t.Context())
	check(w.t, err)
	other, err := state.Instance(machine(0))
	check(w.t, err)
	subnet := state.Attached(other.ID)[0].SubnetID
	check(w.t, w.eks.Create(w.t.Context(), "/apis/crd.k8s.amazonaws.com/v1alpha1/eniconfigs", map[string]any{
		"apiVersion": "crd.k8s.amazonaws.com/v1alpha1", "kind": "ENIConfig", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"subnet": subnet, "securityGroups": primary.Groups},
	}, nil))
	n.start()
	p := n.add()
	enis := n.enis()
	if len(enis) != 2 || len(enis[0].Secondary) != 0 || enis[1].SubnetID != subnet || !slices.Equal(enis[1].Groups, primary.Groups) {
		w.t.Fatalf("ENIs are %+v, want a second one in %s", enis, subnet)
	}
	if !enis[1].Holds(p.addr) {
		w.t.Errorf("%s is not of the second ENI", p.addr)
	}
	if !w.answers(n.Network(), p.addr) {
		w.t.Errorf("%s does not answer its own node", p.addr)
	}
	internet, address := w.outside()
	place, err := w.Machine(n.Name())
	check(w.t, err)
	if source := w.seenAs(p.Network(), internet, address); source != place.Public {
		w.t.Errorf("outside %s is seen as %s, want %s", p.addr, source, place.Public)
	}
	w.say("with an ENIConfig a pod of %s is %s, in another subnet; the primary ENI has no addresses for pods; outside the pod is seen as the node", place.Address, p.addr)
}

// asksForATrunk: the agent asks the cluster's controller for a trunk by the node's CNINode.
func (w *world) asksForATrunk() {
	n := w.node(8, map[string]string{"ENABLE_POD_ENI": "true"})
	const path = "/apis/vpcresources.k8s.aws/v1alpha1/cninodes"
	check(w.t, w.eks.Create(w.t.Context(), path, map[string]any{
		"apiVersion": "vpcresources.k8s.aws/v1alpha1", "kind": "CNINode", "metadata": map[string]any{"name": n.Name()}, "spec": map[string]any{},
	}, nil))
	n.start()
	var got struct {
		Spec struct{ Features []struct{ Name string } }
	}
	check(w.t, w.eks.Get(w.t.Context(), path+"/"+n.Name(), &got))
	if len(got.Spec.Features) != 1 || got.Spec.Features[0].Name != "SecurityGroupsForPods" {
		w.t.Errorf("the features of its CNINode are %+v", got.Spec.Features)
	}
	w.say("with ENABLE_POD_ENI its CNINode asks for %v when it serves", got.Spec.Features)
}
