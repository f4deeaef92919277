package figures

// The fake EC2's series. Sizes are ENIs in the region, each with ten addresses.
const (
	FewENIs  = 100
	ManyENIs = 10_000
	PageSize = 1000
)

// What one request, the store and an hour cost.
var (
	DescribeByID = Series{"server CPU, describe by id", "ms"}
	DescribePage = Series{"server CPU, filtered page", "ms"}
	PageWait     = Series{"filtered page as the client sees it", "ms"}
	StoreMemory  = Series{"RssAnon of the server, nothing asked yet", "MiB"}
	ServedMemory = Series{"RssAnon of the server, after the requests", "MiB"}
	VirtualHour  = Series{"virtual hour", "s"}
	HourRequests = Series{"requests in a virtual hour", "requests"}
)

// ENIActions are the actions of which an ENI's beginning consists.
func ENIActions() []string {
	return []string{"CreateNetworkInterface", "AttachNetworkInterface", "AssignPrivateIpAddresses"}
}

// ActionCPU is the server's processor time for each request of an action, with so many ENIs in the region.
func ActionCPU(action string, enis int) Series {
	return Series{"server CPU, " + action + ", " + itoa(enis) + " ENIs", "ms"}
}

// BeginningCPU is that of all ENIActions together.
func BeginningCPU(enis int) Series { return ActionCPU("create, attach and assign", enis) }

func fakeec2Rows() []Row {
	const group = "fakeec2"
	nothing := Series{}
	rows := []Row{
		{group, "fakeec2, 10,000 ENIs: server CPU for a describe by id", DescribeByID, nothing, atMost(0.4)},
		{group, "fakeec2, 10,000 ENIs: server CPU for a filtered page of 1,000", DescribePage, nothing, atMost(50)},
		{group, "fakeec2, 10,000 ENIs: that page as the client waits for it", PageWait, nothing, atMost(50)},
		{group, "fakeec2: create, attach and assign with 10,000 ENIs, to 100", BeginningCPU(ManyENIs), BeginningCPU(FewENIs), atMost(1.3)},
	}
	for _, action := range ENIActions() {
		rows = append(rows, Row{group, "fakeec2: " + action + " with 10,000 ENIs, to 100", ActionCPU(action, ManyENIs), ActionCPU(action, FewENIs), Goal{}})
	}
	return append(rows,
		Row{group, "fakeec2: anonymous memory with 10,000 ENIs and 100,000 addresses", StoreMemory, nothing, Goal{}},
		Row{group, "fakeec2: the same after the requests of this group, its journal included", ServedMemory, nothing, Goal{}},
		Row{group, "fakeec2: a virtual hour of 100 nodes with churn", VirtualHour, nothing, atMost(10)},
		Row{group, "fakeec2: requests in that hour", HourRequests, nothing, Goal{}},
	)
}
