package vpc

import (
	"net"
	"net/netip"
	"time"
)

// Guest says what of an instance's namespace was there before the instance.
type Guest struct {
	Link string // the primary link, which exists in Namespace; "" where the data plane makes it
	Boot int    // how often the namespace was adopted: another number is another namespace, even at the same path
}

// AdoptInput describes an instance of a namespace that exists, with a link in it. Name, Namespace, Link, MAC and PrivateIP are
// required; without SubnetID the subnet of the address is taken.
type AdoptInput struct {
	LaunchInput
	Link string
}

// Adopt makes a running instance of a namespace with a link in it: the link's address and MAC become the primary ENI. An adopted
// instance of the same name that runs is adopted again: a container that was restarted has a new namespace and perhaps a new MAC,
// but keeps its address and its other ENIs.
func (v *VPC) Adopt(now time.Time, in AdoptInput) (Instance, error) {
	v.begin(now)
	defer v.end()
	for parameter, given := range map[string]string{"Name": in.Name, "Namespace": in.Namespace, "Link": in.Link} {
		if given == "" {
			return Instance{}, refuse(CodeMissingParameter, "The request must contain the parameter %s", parameter)
		}
	}
	if _, err := net.ParseMAC(in.MAC); err != nil {
		return Instance{}, refuse(CodeParameterValue, "invalid value for parameter MAC: %s", clip(in.MAC))
	}
	for _, i := range v.instances {
		if i.Name == in.Name && (i.State == Running || i.State == Stopped) {
			return v.adoptAgain(i, in)
		}
	}
	if in.SubnetID == "" {
		in.SubnetID = v.subnetOf(in.PrivateIP)
	}
	i, err := v.launch(in.LaunchInput, "", Running)
	if err != nil {
		return Instance{}, err
	}
	i.Guest = Guest{Link: in.Link, Boot: 1}
	return i.clone(), nil
}

func (v *VPC) adoptAgain(i *instance, in AdoptInput) (Instance, error) {
	holder, taken := v.macs[in.MAC]
	switch {
	case i.Guest.Link == "":
		return Instance{}, refuse(CodeParameterValue, "The name '%s' is that of '%s', which was not adopted", clip(in.Name), i.ID)
	case i.State != Running:
		return Instance{}, wrongState(i)
	case in.PrivateIP != i.PrivateIP:
		return Instance{}, refuse(CodeParameterValue, "The address %s is not that of '%s', %s: an instance keeps its primary address for life", in.PrivateIP, i.ID, i.PrivateIP)
	case taken && holder != i.enis[0]:
		return Instance{}, refuse(CodeParameterValue, "The MAC '%s' is already in use", in.MAC)
	}
	e := edit(v.enis[i.enis[0]])
	delete(v.macs, e.MAC)
	e.MAC = in.MAC
	v.macs[e.MAC] = e.ID
	v.put(e)
	i.Namespace = in.Namespace
	i.Guest = Guest{Link: in.Link, Boot: i.Guest.Boot + 1}
	v.emit(Event{Kind: InstanceModified, Instance: i.ID, ENI: e.ID, Detail: "namespace"})
	return i.clone(), nil
}

// subnetOf finds the subnet of an address, "" if no subnet or more than one has it.
func (v *VPC) subnetOf(addr netip.Addr) string {
	found := ""
	for id, s := range v.subnets {
		if s.CIDR.Contains(addr) {
			if found != "" {
				return ""
			}
			found = id
		}
	}
	return found
}
