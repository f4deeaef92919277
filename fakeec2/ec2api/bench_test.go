package ec2api_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

// How much is measured: blocks long against what a look at the clock costs, and short against the machine's moods.
const (
	benchBlocks  = 30
	byIDInBlock  = 200
	pagesInBlock = 8
	livesInBlock = 20 // rounds of as many ENIs as the spare instances take
	freeDevices  = 14 // of a crowdType beside the primary
	benchHours   = 7
)

// BenchmarkFakeEC2 measures the endpoint as e2e/figures has it, each server in a process of its own: what it costs is that
// process' processor time.
func BenchmarkFakeEC2(b *testing.B) {
	record := figures.Record(b, "fakeec2")
	few, many := startCrowd(b, figures.FewENIs), startCrowd(b, figures.ManyENIs)
	record.Add(figures.StoreMemory, 0, many.memory())
	many.provesPage()
	for block := range benchBlocks {
		record.Add(figures.DescribeByID, block, many.costOf(byIDInBlock, func() { many.post(many.described) }))
		began := time.Now()
		record.Add(figures.DescribePage, block, many.costOf(pagesInBlock, func() { many.post(page) }))
		record.Times(figures.PageWait, block, time.Since(began)/pagesInBlock)
		worlds := []*remoteCrowd{few, many}
		if block%2 == 1 { // neither is always first
			worlds = []*remoteCrowd{many, few}
		}
		for _, w := range worlds {
			w.begin(record, block)
		}
	}
	record.Add(figures.ServedMemory, 0, many.memory())
	for block := range benchHours {
		began := time.Now()
		requests := virtualHour(b)
		record.Times(figures.VirtualHour, block, time.Since(began))
		record.Add(figures.HourRequests, block, float64(requests))
	}
}

// page asks for the first page of a scan for the ENIs of nodes.
const page = "Action=DescribeNetworkInterfaces&MaxResults=1000&Filter.1.Name=tag-key&Filter.1.Value.1=node&Filter.2.Name=description&Filter.2.Value.1=aws-K8S-*"

// provesPage fails unless the page is what it is taken for.
func (r *remoteCrowd) provesPage() {
	r.b.Helper()
	body := r.post(page)
	if n := bytes.Count(body, []byte("<macAddress>")); n != figures.PageSize || !bytes.Contains(body, []byte("<nextToken>")) {
		r.b.Fatalf("the page has %d ENIs, want %d and more to come", n, figures.PageSize)
	}
}

// costOf is the server's processor time of each of so many requests, in milliseconds.
func (r *remoteCrowd) costOf(count int, ask func()) float64 {
	r.b.Helper()
	before := r.cpu()
	for range count {
		ask()
	}
	return (r.cpu() - before).Seconds() * 1000 / float64(count)
}

// begin measures create, attach and assign on the spare instances, and what it made it takes away again.
func (r *remoteCrowd) begin(record *figures.Recorder, block int) {
	r.b.Helper()
	const count = 2 * freeDevices
	var cost [3]float64
	for range livesInBlock {
		var enis, attachments []string
		cost[0] += r.costOf(count, func() {
			enis = append(enis, between(string(r.post("Action=CreateNetworkInterface&SubnetId="+r.Subnet)), "networkInterfaceId"))
		})
		cost[1] += r.costOf(count, func() {
			n := len(attachments)
			attachments = append(attachments, between(string(r.post("Action=AttachNetworkInterface&DeviceIndex="+itoa(1+n/2)+"&InstanceId="+r.Nodes[n%2]+"&NetworkInterfaceId="+enis[n])), "attachmentId"))
		})
		n := 0
		cost[2] += r.costOf(count, func() {
			r.post("Action=AssignPrivateIpAddresses&SecondaryPrivateIpAddressCount=10&NetworkInterfaceId=" + enis[n])
			n++
		})
		for _, attachment := range attachments {
			r.post("Action=DetachNetworkInterface&AttachmentId=" + attachment)
		}
		for _, eni := range enis {
			r.post("Action=DeleteNetworkInterface&NetworkInterfaceId=" + eni)
		}
	}
	for n, action := range figures.ENIActions() {
		record.Add(figures.ActionCPU(action, r.enis), block, cost[n]/livesInBlock)
	}
	record.Add(figures.BeginningCPU(r.enis), block, (cost[0]+cost[1]+cost[2])/livesInBlock)
}
