package ec2api

import (
	"net/netip"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

type runInput struct {
	dryRun
	ImageID          string        `query:"ImageId,required"`
	Type             string        `query:"InstanceType"`
	Min              int           `query:"MinCount,required"`
	Max              int           `query:"MaxCount,required"`
	SubnetID         string        `query:"SubnetId"`
	SecurityGroupID  []string      `query:"SecurityGroupId"`
	PrivateIPAddress string        `query:"PrivateIpAddress"`
	IPv6             []ipv6Input   `query:"Ipv6Address"`
	IPv6Count        int           `query:"Ipv6AddressCount"`
	Interfaces       []runENIInput `query:"NetworkInterface"`
	Profile          profileInput  `query:"IamInstanceProfile"`
	Metadata         metadataInput `query:"MetadataOptions"`
	ClientToken      string        `query:"ClientToken"`
	TagSpecification []tagsForType `query:"TagSpecification"`
}

type runENIInput struct {
	eniInput
	DeviceIndex        *int   `query:"DeviceIndex"`
	NetworkCardIndex   int    `query:"NetworkCardIndex"`
	NetworkInterfaceID string `query:"NetworkInterfaceId"`
	PrimaryIPv6        bool   `query:"PrimaryIpv6"`
	Delete             *bool  `query:"DeleteOnTermination"`
	Public             *bool  `query:"AssociatePublicIpAddress"`
}

type profileInput struct {
	Name string `query:"Name"`
}

type metadataInput struct {
	Endpoint string `query:"HttpEndpoint"`
	IPv6     string `query:"HttpProtocolIpv6"`
	HopLimit *int   `query:"HttpPutResponseHopLimit"`
	Tokens   string `query:"HttpTokens"`
	Tags     string `query:"InstanceMetadataTags"`
}

// options reads the words that EC2 has for true and false.
func (in metadataInput) options() (vpc.MetadataOptions, error) {
	var o vpc.MetadataOptions
	for _, x := range []struct {
		name, text, yes, no string
		to                  **bool
	}{
		{"HttpTokens", in.Tokens, "required", "optional", &o.TokensRequired}, {"HttpEndpoint", in.Endpoint, "disabled", "enabled", &o.Off},
		{"HttpProtocolIpv6", in.IPv6, "enabled", "disabled", &o.IPv6}, {"InstanceMetadataTags", in.Tags, "enabled", "disabled", &o.Tags},
	} {
		is := x.text == x.yes
		switch x.text {
		case "":
		case x.yes, x.no:
			*x.to = &is
		default:
			return o, refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expecting %s or %s.", clip(x.text), x.name, x.yes, x.no)
		}
	}
	if in.HopLimit != nil {
		if o.HopLimit = *in.HopLimit; o.HopLimit < 1 {
			o.HopLimit = -1
		}
	}
	return o, nil
}

type runOutput struct {
	head
	ID        string           `xml:"reservationId"`
	OwnerID   string           `xml:"ownerId"`
	Groups    set[groupXML]    `xml:"groupSet"`
	Instances set[instanceXML] `xml:"instancesSet"`
}

func runInstances(c *call, in runInput) (response, error) {
	run, err := in.run()
	if err != nil {
		return nil, err
	}
	made, err := c.vpc.RunInstances(c.now(), run)
	if err != nil {
		return nil, err
	}
	out := &runOutput{ID: made[0].ReservationID, OwnerID: c.vpc.Account()}
	p := c.painter()
	for _, i := range made {
		out.Instances.Items = append(out.Instances.Items, p.instance(machine{i, c.vpc.InstanceENIs(i.ID)}))
	}
	return out, nil
}

// run gives the request in the model's words.
func (in runInput) run() (vpc.RunInput, error) {
	run := vpc.RunInput{Min: in.Min, Max: in.Max, ClientToken: in.ClientToken, LaunchInput: vpc.LaunchInput{
		Type: in.Type, ImageID: in.ImageID, SubnetID: in.SubnetID, Groups: in.SecurityGroupID, Role: in.Profile.Name, IPv6Count: in.IPv6Count,
	}}
	tags, err := tagsFor(in.TagSpecification, "instance", "network-interface")
	if err != nil {
		return run, err
	}
	run.Tags, run.ENITags = tags["instance"], tags["network-interface"]
	options, err := in.Metadata.options()
	if err != nil {
		return run, err
	}
	is := func(b *bool) bool { return b != nil && *b }
	run.HopLimit, run.TokensRequired, run.MetadataOff = options.HopLimit, is(options.TokensRequired), is(options.Off)
	run.MetadataIPv6, run.MetadataTags = is(options.IPv6), is(options.Tags)
	if in.PrivateIPAddress != "" {
		if run.PrivateIP, err = parseAddr(in.PrivateIPAddress, netip.Addr.Is4); err != nil {
			return run, err
		}
	}
	for _, x := range in.IPv6 {
		a, err := parseAddr(x.Address, netip.Addr.Is6)
		if err != nil {
			return run, err
		}
		run.IPv6 = append(run.IPv6, a)
	}
	if in.SubnetID == "" && len(in.Interfaces) == 0 {
		return run, missing("SubnetId") // EC2 would take the default VPC's, which a fake region has none of
	}
	for n, x := range in.Interfaces {
		l, err := x.launch(n)
		if err != nil {
			return run, err
		}
		run.AssignPublic = run.AssignPublic || x.Public != nil && *x.Public
		run.Interfaces = append(run.Interfaces, l)
	}
	return run, nil
}

func (in runENIInput) launch(n int) (vpc.LaunchInterface, error) {
	create, err := in.create()
	if err != nil {
		return vpc.LaunchInterface{}, err
	}
	create.EnablePrimaryIPv6 = create.EnablePrimaryIPv6 || in.PrimaryIPv6
	l := vpc.LaunchInterface{Card: in.NetworkCardIndex, NetworkInterfaceID: in.NetworkInterfaceID, Create: create}
	switch {
	case in.DeviceIndex != nil:
		l.Device = *in.DeviceIndex
	case in.NetworkInterfaceID == "":
		return l, refuse("MissingParameter", "The request must contain the parameter NetworkInterface.%d.DeviceIndex", n+1)
	}
	if in.NetworkInterfaceID != "" && in.SubnetID != "" {
		return l, combination("networkInterfaceId", "subnetId")
	}
	if in.NetworkInterfaceID == "" && in.SubnetID == "" {
		return l, refuse("MissingParameter", "The request must contain the parameter NetworkInterface.%d.SubnetId", n+1)
	}
	l.KeepOnTermination = in.Delete != nil && !*in.Delete
	return l, nil
}

type instancesInput struct {
	dryRun
	InstanceID []string `query:"InstanceId,required"`
}

type statesOutput struct {
	head
	Instances set[stateChangeXML] `xml:"instancesSet"`
}

type stateChangeXML struct {
	ID       string   `xml:"instanceId"`
	Current  stateXML `xml:"currentState"`
	Previous stateXML `xml:"previousState"`
}

// stopping is what EC2 calls an instance between running and stopped. Here it stops at once, and only the answer says so.
const stopping = "stopping"

// step is a change of an instance's state: it leads through one state to another. Like EC2, the answer names the state between,
// whether or not the instance is already farther.
type step struct {
	through, to string
	do          func(id string) error
}

// all carries out a change of state of every named instance, or of none.
func (in instancesInput) all(c *call, allowed func(vpc.Instance) error, change step) (response, error) {
	before, err := c.vpc.DescribeInstances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range before {
		if err := allowed(i); err != nil {
			return nil, err
		}
	}
	out := &statesOutput{}
	for _, i := range before {
		now := change.through
		if i.State == change.to {
			now = i.State
		} else if err := change.do(i.ID); err != nil {
			return nil, err
		}
		out.Instances.Items = append(out.Instances.Items, stateChangeXML{
			i.ID, stateXML{stateCode(now), now}, stateXML{stateCode(i.State), i.State},
		})
	}
	return out, nil
}

func terminateInstances(c *call, in instancesInput) (response, error) {
	any := func(vpc.Instance) error { return nil }
	return in.all(c, any, step{vpc.ShuttingDown, vpc.Terminated, func(id string) error { return c.vpc.TerminateInstance(c.now(), id) }})
}

// inState refuses an instance that is in neither of two states; the second is where the change leads.
func inState(from, already string) func(vpc.Instance) error {
	return func(i vpc.Instance) error {
		if i.State == from || i.State == already {
			return nil
		}
		return refuse(vpc.CodeIncorrectInstanceState, "The instance '%s' is not in a state from which this can be done: it is '%s'.", i.ID, i.State)
	}
}

func stopInstances(c *call, in instancesInput) (response, error) {
	return in.all(c, inState(vpc.Running, vpc.Stopped), step{stopping, vpc.Stopped, func(id string) error { return c.vpc.StopInstance(c.now(), id) }})
}

func startInstances(c *call, in instancesInput) (response, error) {
	return in.all(c, inState(vpc.Stopped, vpc.Running), step{vpc.Pending, vpc.Running, func(id string) error { return c.vpc.StartInstance(c.now(), id) }})
}

type metadataOptionsInput struct {
	dryRun
	metadataInput
	InstanceID string `query:"InstanceId,required"`
}

type metadataOptionsOutput struct {
	head
	InstanceID string      `xml:"instanceId"`
	Options    metadataXML `xml:"instanceMetadataOptions"`
}

func modifyInstanceMetadataOptions(c *call, in metadataOptionsInput) (response, error) {
	options, err := in.options()
	if err != nil {
		return nil, err
	}
	i, err := c.vpc.ModifyInstanceMetadataOptions(c.now(), in.InstanceID, options)
	if err != nil {
		return nil, err
	}
	x := metadataElement(i)
	x.State = "pending" // as EC2 says at first; here it is applied at once
	return &metadataOptionsOutput{InstanceID: i.ID, Options: x}, nil
}

func metadataElement(i vpc.Instance) metadataXML {
	return metadataXML{
		State: "applied", Tokens: word(i.TokensRequired, "required", "optional"), HopLimit: i.HopLimit, Endpoint: word(i.MetadataOff, "disabled", "enabled"),
		IPv6: word(i.MetadataIPv6, "enabled", "disabled"), InstanceTags: word(i.MetadataTags, "enabled", "disabled"),
	}
}
