package ipamd

import (
	"context"
	"net/netip"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// eniPage is /v1/enis, by network card: the incumbent's form. There is no card but the first.
type eniPage map[string]cardPage

// firstCard is the network card whose ENIs have pods.
const firstCard = "0"

type cardPage struct {
	TotalIPs    int
	AssignedIPs int
	ENIs        map[string]eniEntry
}

// eniEntry has what the incumbent's page tells of an ENI, as far as it exists here, beside what this daemon knows.
type eniEntry struct {
	pool.ENIView
	IsPrimary          bool
	DeviceNumber       int
	SubnetID           string
	AvailableIPv4Cidrs map[string]cidrEntry
	Addresses          []pool.AddressView
}

type cidrEntry struct {
	IsPrefix    bool
	IPAddresses map[string]addressEntry // those that a pod has or had
}

type addressEntry struct {
	Address string
	IPAMKey struct {
		Network string `json:"networkName"`
		Sandbox string `json:"containerID"`
		IfName  string `json:"ifName"`
	}
	IPAMMetadata struct {
		Namespace string `json:"k8sPodNamespace,omitempty"`
		Name      string `json:"k8sPodName,omitempty"`
	}
	AssignedTime time.Time
}

func (d *daemon) eniPage(ctx context.Context) (any, error) {
	status, err := d.loop.Status(ctx)
	if err != nil {
		return nil, err
	}
	figures := count(status.Pool, d.settings.MaxENI)
	card := cardPage{TotalIPs: figures.IPs, AssignedIPs: figures.AssignedIPs, ENIs: map[string]eniEntry{}}
	for _, eni := range status.Pool.ENIs {
		card.ENIs[eni.ID] = eniEntry{
			ENIView: eni, IsPrimary: eni.Device == 0 && eni.State != pool.Available, DeviceNumber: eni.Device, SubnetID: eni.Subnet,
			AvailableIPv4Cidrs: map[string]cidrEntry{},
		}
	}
	for _, address := range status.Pool.Addresses {
		entry, ok := card.ENIs[address.ENI]
		if !ok {
			continue
		}
		entry.Addresses = append(entry.Addresses, address)
		entry.AvailableIPv4Cidrs[netip.PrefixFrom(address.Addr, address.Addr.BitLen()).String()] = cidrOf(address)
		card.ENIs[address.ENI] = entry
	}
	return eniPage{firstCard: card}, nil
}

func cidrOf(view pool.AddressView) cidrEntry {
	cidr := cidrEntry{IPAddresses: map[string]addressEntry{}}
	if held := view.Assignment; held != nil {
		entry := addressEntry{Address: view.Addr.String(), AssignedTime: held.Since}
		entry.IPAMKey.Network, entry.IPAMKey.Sandbox, entry.IPAMKey.IfName = held.Key.Network, held.Key.Sandbox, held.Key.IfName
		entry.IPAMMetadata.Namespace, entry.IPAMMetadata.Name = held.Pod.Namespace, held.Pod.Name
		cidr.IPAddresses[entry.Address] = entry
	}
	return cidr
}
