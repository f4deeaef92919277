package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// defaultType is what an instance is where nothing is said.
const defaultType = "m5.xlarge"

// Bodies of POST /instances/... and /enis/.... An instance is named by id or name, a subnet by id or range, a group by id or name.
type (
	runRequest struct {
		Name           string     `json:"name"`
		Type           string     `json:"type"`
		Subnet         string     `json:"subnet"`
		Address        netip.Addr `json:"address"`
		Public         netip.Addr `json:"public"`
		Groups         []string   `json:"groups"`
		Role           string     `json:"role"`
		HopLimit       int        `json:"hopLimit"`
		TokensRequired bool       `json:"tokensRequired"`
		Namespace      string     `json:"namespace"`
		Link           string     `json:"link"` // for adopt: the primary link in Namespace
	}
	instanceRequest struct {
		Instance string `json:"instance"`
	}
	announceRequest struct {
		Instance  string `json:"instance"`
		Interrupt string `json:"interrupt"` // terminate, stop or hibernate; "" announces no interruption
		InSeconds int    `json:"inSeconds"` // until it; EC2 gives 120
		Rebalance bool   `json:"rebalance"`
	}
	metadataRequest struct {
		Instance       string `json:"instance"`
		HopLimit       int    `json:"hopLimit"`
		TokensRequired *bool  `json:"tokensRequired"`
		Off            *bool  `json:"off"`
		IPv6           *bool  `json:"ipv6"`
		Tags           *bool  `json:"tags"`
	}
	createRequest struct {
		Subnet      string   `json:"subnet"`
		Description string   `json:"description"`
		Type        string   `json:"type"`
		Groups      []string `json:"groups"`
		Addresses   int      `json:"addresses"` // beside the primary one
		Prefixes    int      `json:"prefixes"`
	}
	attachRequest struct {
		ENI      string `json:"eni"`
		Instance string `json:"instance"`
		Device   int    `json:"device"`
		Card     int    `json:"card"`
	}
	eniRequest struct {
		ENI   string `json:"eni"`
		Force bool   `json:"force"` // for detach
	}
	assignRequest struct {
		ENI       string         `json:"eni"`
		Count     int            `json:"count"`
		Prefixes  int            `json:"prefixes"`
		Addresses []netip.Addr   `json:"addresses"`
		Blocks    []netip.Prefix `json:"blocks"`
	}
	modifyRequest struct {
		ENI    string   `json:"eni"`
		Groups []string `json:"groups"`
		Check  *bool    `json:"check"` // the source/destination check
	}
)

// actions are the admin socket's requests that change the world.
func (v *server) actions(mux *http.ServeMux) {
	mux.Handle("POST /instances/run", act(v, v.runInstance))
	mux.Handle("POST /instances/adopt", act(v, v.adoptInstance))
	mux.Handle("POST /instances/terminate", act(v, v.terminateInstance))
	mux.Handle("POST /instances/announce", act(v, v.notify))
	mux.Handle("POST /instances/metadata", act(v, v.metadataOptions))
	mux.Handle("POST /metadata/limit", act(v, v.limitMetadata))
	mux.Handle("POST /enis/create", act(v, v.createENI))
	mux.Handle("POST /enis/attach", act(v, v.attachENI))
	mux.Handle("POST /enis/detach", act(v, v.detachENI))
	mux.Handle("POST /enis/delete", act(v, v.deleteENI))
	mux.Handle("POST /enis/assign", act(v, v.assign))
	mux.Handle("POST /enis/unassign", act(v, v.unassign))
	mux.Handle("POST /enis/modify", act(v, v.modifyENI))
}

// outcome is what an action answers: the instance or ENI as it is afterwards.
type outcome struct {
	Instance *vpc.Instance `json:",omitempty"`
	ENI      *vpc.ENI      `json:",omitempty"`
}

// act answers with what an action did, when it is also true on the wire.
func act[In any](v *server, do func(time.Time, In) (outcome, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		if !read(w, r, &in) {
			return
		}
		done, err := do(time.Now(), in)
		if err == nil {
			err = v.plane.Sync()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, done)
	})
}

func (v *server) launch(in runRequest) (vpc.LaunchInput, error) {
	out := vpc.LaunchInput{
		Name: in.Name, Type: in.Type, PrivateIP: in.Address, Public: in.Public, Role: in.Role, HopLimit: in.HopLimit,
		TokensRequired: in.TokensRequired, Namespace: in.Namespace,
	}
	if out.Type == "" {
		out.Type = defaultType
	}
	var err error
	if in.Subnet != "" {
		if out.SubnetID, err = v.subnet(in.Subnet); err != nil {
			return out, err
		}
	}
	out.Groups, err = v.groups(in.Groups)
	return out, err
}

func (v *server) runInstance(now time.Time, in runRequest) (outcome, error) {
	launch, err := v.launch(in)
	if err != nil {
		return outcome{}, err
	}
	if launch.SubnetID == "" {
		return outcome{}, fmt.Errorf("run an instance: which subnet? %s", v.subnetChoice())
	}
	if _, taken := v.plane.Namespaces()[in.Name]; taken && in.Name != "" {
		return outcome{}, fmt.Errorf("run an instance: the name %q is taken", in.Name)
	}
	i, err := v.Model.Launch(now, launch)
	return outcome{Instance: &i}, err
}

func (v *server) adoptInstance(now time.Time, in runRequest) (outcome, error) {
	launch, err := v.launch(in)
	if err != nil {
		return outcome{}, err
	}
	if launch.MAC, launch.PrivateIP, err = dataplane.Inspect(in.Namespace, in.Link); err != nil {
		return outcome{}, fmt.Errorf("adopt %s: %w", in.Name, err)
	}
	i, err := v.Model.Adopt(now, vpc.AdoptInput{LaunchInput: launch, Link: in.Link})
	return outcome{Instance: &i}, err
}

func (v *server) terminateInstance(now time.Time, in instanceRequest) (outcome, error) {
	id, err := v.instance(in.Instance)
	if err != nil {
		return outcome{}, err
	}
	err = v.Model.TerminateInstance(now, id)
	return v.instanceNow(id), err
}

func (v *server) notify(now time.Time, in announceRequest) (outcome, error) {
	id, err := v.instance(in.Instance)
	if err != nil {
		return outcome{}, err
	}
	var n vpc.Notices
	if in.Interrupt != "" {
		if !slices.Contains([]string{"terminate", "stop", "hibernate"}, in.Interrupt) {
			return outcome{}, fmt.Errorf("announce to %s: interruption %q: want terminate, stop or hibernate", in.Instance, in.Interrupt)
		}
		n.InterruptionAction, n.InterruptionAt = in.Interrupt, now.Add(time.Duration(in.InSeconds)*time.Second)
	}
	if in.Rebalance {
		n.RebalanceAt = now
	}
	err = v.Model.Announce(now, id, n)
	return v.instanceNow(id), err
}

func (v *server) metadataOptions(now time.Time, in metadataRequest) (outcome, error) {
	id, err := v.instance(in.Instance)
	if err != nil {
		return outcome{}, err
	}
	i, err := v.Model.ModifyInstanceMetadataOptions(now, id, vpc.MetadataOptions{
		HopLimit: in.HopLimit, TokensRequired: in.TokensRequired, Off: in.Off, IPv6: in.IPv6, Tags: in.Tags,
	})
	return outcome{Instance: &i}, err
}

func (v *server) limitMetadata(_ time.Time, in imds.Limit) (outcome, error) {
	if in.PerSecond < 0 || in.Burst < 0 {
		return outcome{}, fmt.Errorf("limit metadata requests to %v: want numbers from 0", in)
	}
	v.metadata.SetLimit(in)
	return outcome{}, nil
}

func (v *server) createENI(now time.Time, in createRequest) (outcome, error) {
	subnet, err := v.subnet(in.Subnet)
	if err != nil {
		return outcome{}, err
	}
	groups, err := v.groups(in.Groups)
	if err != nil {
		return outcome{}, err
	}
	e, err := v.Model.CreateNetworkInterface(now, vpc.CreateNetworkInterfaceInput{
		SubnetID: subnet, Description: in.Description, InterfaceType: in.Type, Groups: groups, SecondaryCount: in.Addresses, PrefixCount: in.Prefixes,
	})
	if err != nil {
		return outcome{}, err
	}
	return v.eniNow(e.ID), nil
}

func (v *server) attachENI(now time.Time, in attachRequest) (outcome, error) {
	id, err := v.instance(in.Instance)
	if err != nil {
		return outcome{}, err
	}
	_, err = v.Model.AttachNetworkInterface(now, vpc.AttachNetworkInterfaceInput{InstanceID: id, NetworkInterfaceID: in.ENI, Device: in.Device, Card: in.Card})
	return v.eniNow(in.ENI), err
}

func (v *server) detachENI(now time.Time, in eniRequest) (outcome, error) {
	e, known := v.Model.ENI(in.ENI)
	if !known || e.Attachment == nil {
		return outcome{}, fmt.Errorf("detach %q: no such ENI is attached", in.ENI)
	}
	err := v.Model.DetachNetworkInterface(now, vpc.DetachNetworkInterfaceInput{AttachmentID: e.Attachment.ID, Force: in.Force})
	return v.eniNow(in.ENI), err
}

func (v *server) deleteENI(now time.Time, in eniRequest) (outcome, error) {
	return outcome{}, v.Model.DeleteNetworkInterface(now, in.ENI)
}

func (v *server) assign(now time.Time, in assignRequest) (outcome, error) {
	_, err := v.Model.AssignPrivate(now, vpc.AssignPrivateIpAddressesInput{
		NetworkInterfaceID: in.ENI, Count: in.Count, PrefixCount: in.Prefixes, Addresses: in.Addresses, Prefixes: in.Blocks,
	})
	return v.eniNow(in.ENI), err
}

func (v *server) unassign(now time.Time, in assignRequest) (outcome, error) {
	err := v.Model.UnassignPrivateIpAddresses(now, vpc.UnassignPrivateIpAddressesInput{NetworkInterfaceID: in.ENI, Addresses: in.Addresses, Prefixes: in.Blocks})
	return v.eniNow(in.ENI), err
}

func (v *server) modifyENI(now time.Time, in modifyRequest) (outcome, error) {
	groups, err := v.groups(in.Groups)
	if err != nil {
		return outcome{}, err
	}
	err = v.Model.ModifyNetworkInterfaceAttribute(now, vpc.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceID: in.ENI, Groups: groups, SourceDestCheck: in.Check})
	return v.eniNow(in.ENI), err
}

func (v *server) instanceNow(id string) outcome {
	i, known := v.Model.Instance(id)
	if !known {
		return outcome{}
	}
	return outcome{Instance: &i}
}

func (v *server) eniNow(id string) outcome {
	e, known := v.Model.ENI(id)
	if !known {
		return outcome{}
	}
	return outcome{ENI: &e}
}

var errNone = errors.New("there is none")

// instance finds an instance by its id, or a living one by its name.
func (v *server) instance(key string) (string, error) {
	for _, i := range v.Model.Instances() {
		if i.ID == key || i.Name == key && key != "" && i.State != vpc.Terminated && i.State != vpc.ShuttingDown {
			return i.ID, nil
		}
	}
	return "", fmt.Errorf("find instance %q: %w", key, errNone)
}

// subnet finds a subnet by its id or range.
func (v *server) subnet(key string) (string, error) {
	for _, s := range v.Model.Subnets() {
		if s.ID == key || s.CIDR.String() == key {
			return s.ID, nil
		}
	}
	return "", fmt.Errorf("find subnet %q: %w; %s", key, errNone, v.subnetChoice())
}

func (v *server) subnetChoice() string {
	var all []string
	for _, s := range v.Model.Subnets() {
		all = append(all, s.ID+" ("+s.CIDR.String()+")")
	}
	return "want one of " + strings.Join(all, ", ")
}

// groups finds security groups by id or name.
func (v *server) groups(keys []string) ([]string, error) {
	var ids, names []string
	for _, g := range v.Model.SecurityGroups() {
		names = append(names, g.ID+" ("+g.Name+")")
		if slices.Contains(keys, g.ID) || slices.Contains(keys, g.Name) {
			ids = append(ids, g.ID)
		}
	}
	if len(ids) < len(keys) {
		return nil, fmt.Errorf("find security groups %s: not all are there; want some of %s", strings.Join(keys, ", "), strings.Join(names, ", "))
	}
	return ids, nil
}
