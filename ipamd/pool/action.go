package pool

import (
	"fmt"
	"strings"
)

func (a CreateENI) String() string {
	return fmt.Sprintf("create an ENI with %d secondary addresses in %s", a.Secondary, a.Subnet)
}

func (a AttachENI) String() string { return fmt.Sprintf("attach %s as device %d", a.ENI, a.Device) }

func (a SetDeleteOnTermination) String() string {
	return fmt.Sprintf("set delete-on-termination of %s", a.ENI)
}

func (a AssignAddresses) String() string {
	return fmt.Sprintf("assign %d addresses to %s", a.Count, a.ENI)
}

func (a UnassignAddresses) String() string {
	return fmt.Sprintf("unassign %s from %s", a.Addresses, a.ENI)
}

func (a AssignPrefixes) String() string {
	return fmt.Sprintf("assign %d prefixes to %s", a.Count, a.ENI)
}

func (a UnassignPrefixes) String() string {
	return fmt.Sprintf("unassign prefixes %s from %s", a.Prefixes, a.ENI)
}

func (a DetachENI) String() string { return "detach " + a.ENI }

func (a DeleteENI) String() string { return "delete " + a.ENI }

func joined(list []string) string { return strings.Join(list, ",") }
