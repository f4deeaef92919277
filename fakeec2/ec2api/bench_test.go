package ec2api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// crowd is a region of so many ENIs with ten addresses each, 14 to an instance.
type crowd struct {
	model   *vpc.VPC
	handler *ec2api.Handler
	enis    []string
	node    string // an instance with one ENI
	subnet  string
}

func newCrowd(b *testing.B, enis int) *crowd {
	b.Helper()
	c := &crowd{model: vpc.New(vpc.Options{ENIQuota: 1 << 20, NAULimit: 1 << 20, Lags: &vpc.Lags{}, ReuseDelay: -1})}
	n := must(c.model.AddVPC(vpc.Network{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}}))
	var subnets []string
	for i := range 3 {
		s := must(c.model.AddSubnet(vpc.Subnet{VPCID: n.ID, CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16)}))
		subnets = append(subnets, s.ID)
	}
	c.subnet = subnets[2]
	c.node = must(c.model.Launch(start, vpc.LaunchInput{Type: "m5.24xlarge", SubnetID: c.subnet})).ID
	var node vpc.Instance
	for i := range enis {
		subnet := subnets[i%2]
		if i%28 < 2 {
			node = must(c.model.Launch(start, vpc.LaunchInput{Type: "m5.24xlarge", SubnetID: subnet}))
		}
		e := must(c.model.CreateNetworkInterface(start, vpc.CreateNetworkInterfaceInput{SubnetID: subnet, SecondaryCount: 9, Description: "aws-K8S-" + node.ID, Tags: map[string]string{"node": node.ID}}))
		if i%28 >= 2 && i%2 == 0 {
			must(c.model.AttachNetworkInterface(start, vpc.AttachNetworkInterfaceInput{InstanceID: node.ID, NetworkInterfaceID: e.ID, Device: i%28/2 + 1}))
		}
		c.enis = append(c.enis, e.ID)
	}
	c.handler = ec2api.New(ec2api.Options{VPC: c.model, Now: func() time.Time { return start }})
	return c
}

// post sends a form in-process and gives the answer's body.
func (c *crowd) post(b testing.TB, form string) string {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form+version))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	if c.handler.ServeHTTP(w, r); w.Code != http.StatusOK {
		b.Fatal(w.Body)
	}
	return w.Body.String()
}

// between gives what stands between two tags.
func between(text, element string) string {
	_, rest, _ := strings.Cut(text, "<"+element+">")
	value, _, _ := strings.Cut(rest, "</"+element+">")
	return value
}

// rounds is how many requests one round of a benchmark sends: a figure stands after a single round.
const rounds = 200

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWire has 10,000 ENIs with 100,000 addresses: one client that keeps its connection alive. Its figure is the processor
// time of server and client together; the client reads and throws away.
func BenchmarkWire(b *testing.B) {
	c := newCrowd(b, 10_000)
	server := httptest.NewServer(c.handler)
	defer server.Close()
	conn := must(net.Dial("tcp", server.Listener.Addr().String()))
	defer conn.Close()
	answers := bufio.NewReaderSize(conn, 1<<20)
	for _, bench := range []struct {
		name, form string
		rounds     int
	}{
		{"DescribeByID", "Action=DescribeNetworkInterfaces&NetworkInterfaceId.1=" + c.enis[5000], rounds},
		{"DescribePageOf1000", "Action=DescribeNetworkInterfaces&MaxResults=1000&Filter.1.Name=tag-key&Filter.1.Value.1=node&Filter.2.Name=description&Filter.2.Value.1=aws-K8S-*", rounds / 10},
	} {
		b.Run(bench.name, func(b *testing.B) {
			form := bench.form + version
			request := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: ec2\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(form), form)
			n, before := 0, cpu()
			for b.Loop() {
				for range bench.rounds {
					must(conn.Write(request))
					answer := must(http.ReadResponse(answers, nil))
					if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
						b.Fatal(answer.Status, err)
					}
					_ = answer.Body.Close() // it was read to its end
					n++
				}
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/1000/float64(n), "cpu-ms/request")
		})
	}
}

// BenchmarkLifeOfAnENI is create, attach, assign, detach and delete, with 100 and with 10,000 ENIs in the region.
func BenchmarkLifeOfAnENI(b *testing.B) {
	few, many := newCrowd(b, 100), newCrowd(b, 10_000)
	var spent [2]time.Duration
	for b.Loop() {
		for range 10 { // in turns, so that both see the same machine
			for n, c := range []*crowd{few, many} {
				before := cpu()
				for range rounds {
					c.live(b)
				}
				spent[n] += cpu() - before
			}
		}
	}
	b.ReportMetric(float64(spent[1].Microseconds())/1000/float64(10*rounds*b.N), "cpu-ms/life")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio-10000/100")
}

func (c *crowd) live(b *testing.B) {
	eni := between(c.post(b, "Action=CreateNetworkInterface&SubnetId="+c.subnet), "networkInterfaceId")
	attachment := between(c.post(b, "Action=AttachNetworkInterface&DeviceIndex=1&InstanceId="+c.node+"&NetworkInterfaceId="+eni), "attachmentId")
	c.post(b, "Action=AssignPrivateIpAddresses&SecondaryPrivateIpAddressCount=10&NetworkInterfaceId="+eni)
	c.post(b, "Action=DetachNetworkInterface&AttachmentId="+attachment)
	c.post(b, "Action=DeleteNetworkInterface&NetworkInterfaceId="+eni)
}

// BenchmarkMemory is what 10,000 ENIs with 100,000 addresses take.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		before := heap()
		c := newCrowd(b, 10_000)
		b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
		runtime.KeepAlive(c)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
