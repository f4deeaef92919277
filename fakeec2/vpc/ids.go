package vpc

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// kind is a kind of resource with an id of its own.
type kind struct {
	prefix              string // of the id, with the hyphen
	noun                string // as EC2's messages call it
	malformed, notFound string // codes
}

// resourceKinds in the order in which prefixes must be tried: "eni-attach-" before "eni-".
func resourceKinds() []kind {
	return []kind{
		kindAttachment(), kindPermission(), kindENI(), kindInstance(), kindSubnet(), kindNetwork(), kindGroup(), kindReservation(),
		kindTable(), kindAssociation(), kindGateway(),
	}
}

func kindENI() kind {
	return kind{"eni-", "networkInterface ID", CodeENIMalformed, CodeENINotFound}
}

func kindAttachment() kind {
	return kind{"eni-attach-", "attachment", CodeAttachmentMalformed, CodeAttachmentNotFound}
}

func kindInstance() kind {
	return kind{"i-", "instance ID", CodeInstanceMalformed, CodeInstanceNotFound}
}

func kindSubnet() kind {
	return kind{"subnet-", "subnet ID", CodeSubnetMalformed, CodeSubnetNotFound}
}

func kindNetwork() kind {
	return kind{"vpc-", "vpc ID", CodeVPCMalformed, CodeVPCNotFound}
}

func kindGroup() kind {
	return kind{"sg-", "security group", CodeGroupMalformed, CodeGroupNotFound}
}

func kindReservation() kind {
	return kind{"scr-", "subnet CIDR reservation ID", CodeReservationMalformed, CodeReservationNotFound}
}

func kindTable() kind {
	return kind{"rtb-", "routeTable ID", CodeRouteTableMalformed, CodeRouteTableNotFound}
}

func kindGateway() kind {
	return kind{"igw-", "internetGateway ID", CodeGatewayMalformed, CodeGatewayNotFound}
}

func kindAssociation() kind {
	return kind{"trunk-assoc-", "trunk association ID", CodeAssociationMalformed, CodeAssociationNotFound}
}

func kindPermission() kind {
	return kind{"eni-perm-", "permission ID", CodePermissionNotFound, CodePermissionNotFound}
}

// shownID bounds what a message repeats of a caller's value.
const shownID = 80

func (k kind) missing(id string) *Error {
	return refuse(k.notFound, "The %s '%s' does not exist", k.noun, id)
}

// check refuses an id that is not prefix and 8 or 17 lower-case hexadecimal digits (EC2's old and new form).
func (k kind) check(id string) *Error {
	digits, ok := strings.CutPrefix(id, k.prefix)
	if ok && (len(digits) == 8 || len(digits) == 17) && strings.Trim(digits, "0123456789abcdef") == "" {
		return nil
	}
	return refuse(k.malformed, "Invalid id: %q (expecting %q)", clip(id), k.prefix+"...")
}

// IsID tells whether a text has the form of an id of one of the model's kinds of resource.
func IsID(text string) bool {
	for _, k := range resourceKinds() {
		if k.check(text) == nil {
			return true
		}
	}
	return false
}

func clip(s string) string {
	if len(s) > shownID {
		return strings.ToValidUTF8(s[:shownID], "") + "..."
	}
	return s
}

// newID draws an id in EC2's new form: 17 digits, the first of them 0 as EC2's always are.
func (v *VPC) newID(k kind) string { return drawID(v.ids, k.prefix) }

func drawID(r *rand.Rand, prefix string) string { return fmt.Sprintf("%s0%016x", prefix, r.Uint64()) }

// chosenID gives the id that a builder asked for, or a new one.
func (v *VPC) chosenID(k kind, id string) (string, error) {
	if id == "" {
		return v.newID(k), nil
	}
	if err := k.check(id); err != nil {
		return "", err
	}
	return id, nil
}

// newMAC draws an unused locally administered unicast MAC. EC2's begin with 02, 06 or 0a.
func (v *VPC) newMAC() string {
	for {
		n := v.ids.Uint64()
		mac := fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x",
			[]byte{0x02, 0x06, 0x0a}[n%3], byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40))
		if _, taken := v.macs[mac]; !taken {
			return mac
		}
	}
}

// PrivateDNSName is the name that EC2 gives a private IPv4 address in a region.
func PrivateDNSName(region string, addr netip.Addr) string {
	zone := region + ".compute.internal"
	if region == "us-east-1" { // the oldest region kept its first zone
		zone = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(addr.String(), ".", "-") + "." + zone
}
