package vpc

import (
	"maps"
	"slices"
	"time"
)

// maxVLAN is the highest VLAN id of a trunk. Source: IEEE 802.1Q (0 and 4095 are reserved).
const maxVLAN = 4094

// TrunkAssociation ties a branch ENI to a trunk ENI, whose link carries the branch's packets under a VLAN id.
type TrunkAssociation struct {
	ID, BranchID, TrunkID string
	VLAN                  int
	Tags                  map[string]string
}

// AssociateTrunkInterfaceInput asks for an association by VLAN, the only protocol that the model knows.
type AssociateTrunkInterfaceInput struct {
	BranchID, TrunkID string
	VLAN              int
	ClientToken       string
}

// AssociateTrunkInterface makes an available ENI a branch of a trunk in the same zone.
func (v *VPC) AssociateTrunkInterface(now time.Time, in AssociateTrunkInterfaceInput) (TrunkAssociation, error) {
	v.begin(now)
	defer v.end()
	return once(v, "AssociateTrunkInterface", in.ClientToken, in, func() (TrunkAssociation, error) {
		branch, err := v.eni(in.BranchID)
		if err != nil {
			return TrunkAssociation{}, err
		}
		trunk, err := v.eni(in.TrunkID)
		if err != nil {
			return TrunkAssociation{}, err
		}
		if err := v.checkAssociate(branch, trunk, in.VLAN); err != nil {
			return TrunkAssociation{}, err
		}
		a := TrunkAssociation{ID: drawID(v.minor, kindAssociation().prefix), BranchID: branch.ID, TrunkID: trunk.ID, VLAN: in.VLAN}
		v.trunks[a.ID] = a
		v.branches[branch.ID] = a.ID
		e := edit(branch)
		e.InterfaceType, e.TrunkID, e.VLAN, e.Status = BranchInterface, trunk.ID, in.VLAN, InUse
		v.put(e)
		v.emit(Event{Kind: BranchAssociated, Instance: instanceOf(trunk), ENI: e.ID, Detail: a.ID})
		return a, nil
	})
}

func (v *VPC) checkAssociate(branch, trunk *ENI, vlan int) error {
	switch {
	case trunk.InterfaceType != TrunkInterface:
		return refuse(CodeParameterValue, "Network interface '%s' is not a trunk interface", trunk.ID)
	case branch.InterfaceType != PlainInterface && branch.InterfaceType != BranchInterface:
		return refuse(CodeParameterValue, "Network interface '%s' of type '%s' cannot be a branch", branch.ID, branch.InterfaceType)
	case branch.Attachment != nil || branch.TrunkID != "":
		return refuse(CodeENIInUse, "Interface: [%s] in use.", branch.ID)
	case branch.VPCID != trunk.VPCID || branch.AZ != trunk.AZ:
		return refuse(CodeParameterCombination, "The trunk and the branch interface must be in the same VPC and availability zone")
	case vlan < 1 || vlan > maxVLAN:
		return refuse(CodeParameterValue, "Value (%d) for parameter vlanId is invalid. Expecting a value between 1 and %d.", vlan, maxVLAN)
	}
	for _, a := range v.trunks {
		if a.TrunkID == trunk.ID && a.VLAN == vlan {
			return refuse(CodeParameterValue, "The VLAN id %d is already in use on trunk '%s'", vlan, trunk.ID)
		}
	}
	if trunk.Attachment == nil {
		return nil
	}
	if t := v.instances[trunk.Attachment.InstanceID].Limits; v.branchCount(trunk.ID) >= t.Branches {
		return refuse(v.opts.Inferred.BranchLimit, "Branch interface count %d exceeds the limit for %s", v.branchCount(trunk.ID)+1, t.Name)
	}
	return nil
}

func (v *VPC) branchCount(trunk string) int {
	n := 0
	if e := v.enis[trunk]; e == nil || e.InterfaceType != TrunkInterface {
		return 0
	}
	for _, a := range v.trunks {
		if a.TrunkID == trunk {
			n++
		}
	}
	return n
}

// DisassociateTrunkInterface ends an association: the branch is available again.
func (v *VPC) DisassociateTrunkInterface(now time.Time, id, clientToken string) error {
	v.begin(now)
	defer v.end()
	_, err := once(v, "DisassociateTrunkInterface", clientToken, id, func() (bool, error) {
		if err := kindAssociation().check(id); err != nil {
			return false, err
		}
		a, there := v.trunks[id]
		if !there {
			return false, kindAssociation().missing(id)
		}
		v.disassociate(a)
		return true, nil
	})
	return err
}

func (v *VPC) disassociate(a TrunkAssociation) {
	delete(v.trunks, a.ID)
	delete(v.branches, a.BranchID)
	e := edit(v.enis[a.BranchID])
	e.TrunkID, e.VLAN, e.Status = "", 0, Available
	v.put(e)
	v.emit(Event{Kind: BranchDisassociated, ENI: e.ID, Detail: a.ID})
}

// dissolve ends all associations of an ENI that goes.
func (v *VPC) dissolve(eni string) {
	if id := v.branches[eni]; id != "" {
		v.disassociate(v.trunks[id])
	}
	if v.branchCount(eni) == 0 {
		return
	}
	for _, id := range sortedKeys(v.trunks) {
		if a := v.trunks[id]; a.TrunkID == eni {
			v.disassociate(a)
		}
	}
}

// DescribeTrunkInterfaceAssociations gives the named associations (all for none), ascending by id; the first that does not exist
// is the error.
func (v *VPC) DescribeTrunkInterfaceAssociations(ids []string) ([]TrunkAssociation, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(ids) == 0 {
		ids = sortedKeys(v.trunks)
	}
	return describe(ids, func(id string) (TrunkAssociation, error) {
		if err := kindAssociation().check(id); err != nil {
			return TrunkAssociation{}, err
		}
		if a, there := v.trunks[id]; there {
			return a, nil
		}
		return TrunkAssociation{}, kindAssociation().missing(id)
	}, func(a TrunkAssociation) TrunkAssociation {
		a.Tags = maps.Clone(a.Tags)
		return a
	}, func(a TrunkAssociation) string { return a.ID })
}

// Permission lets another account, or a service, attach an ENI.
type Permission struct {
	ID, NetworkInterfaceID, Account, Service, Kind string
}

// PermissionKinds are what a permission may allow, as EC2 names them.
func PermissionKinds() []string { return []string{"INSTANCE-ATTACH", "EIP-ASSOCIATE"} }

// CreateNetworkInterfacePermission grants a permission; ID is drawn.
func (v *VPC) CreateNetworkInterfacePermission(now time.Time, p Permission) (Permission, error) {
	v.begin(now)
	defer v.end()
	if _, err := v.eni(p.NetworkInterfaceID); err != nil {
		return Permission{}, err
	}
	switch {
	case !slices.Contains(PermissionKinds(), p.Kind):
		return Permission{}, refuse(CodeParameterValue, "Value (%s) for parameter permission is invalid.", clip(p.Kind))
	case p.Account == "" && p.Service == "":
		return Permission{}, refuse(CodeMissingParameter, "The request must contain the parameter awsAccountId or awsService")
	case p.Account != "" && p.Service != "":
		return Permission{}, together("awsAccountId", "awsService")
	}
	for _, other := range v.permissions {
		if other.ID = ""; other == p {
			return Permission{}, refuse(CodePermissionDuplicate, "The permission on '%s' exists already", p.NetworkInterfaceID)
		}
	}
	p.ID = drawID(v.minor, kindPermission().prefix)
	v.permissions[p.ID] = p
	return p, nil
}

// Permissions gives all permissions, ascending by id.
func (v *VPC) Permissions() []Permission {
	v.mu.Lock()
	defer v.mu.Unlock()
	return all(v.permissions, func(p Permission) Permission { return p })
}
