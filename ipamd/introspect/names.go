package introspect

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is the name that dashboards and alerts know. The awscni_ names, their types and labels are the incumbent's.
type metric struct {
	name, kind string
	labels     []string
	help       string
}

var (
	eniAllocated    = metric{"awscni_eni_allocated", "gauge", nil, "ENIs attached to the node"}
	eniMax          = metric{"awscni_eni_max", "gauge", nil, "ENIs that the node may have"}
	ipMax           = metric{"awscni_ip_max", "gauge", nil, "addresses for pods that the node may have"}
	totalIPs        = metric{"awscni_total_ip_addresses", "gauge", nil, "secondary addresses on the node's ENIs"}
	assignedIPs     = metric{"awscni_assigned_ip_addresses", "gauge", nil, "addresses that pods hold"}
	assignedPerENI  = metric{"awscni_assigned_ip_per_eni", "gauge", []string{"eni"}, "addresses that pods hold, by ENI"}
	assignedPerCIDR = metric{"awscni_assigned_ip_per_cidr", "gauge", []string{"cidr"}, "addresses that pods hold, by the block that EC2 gave (each address, /32)"}
	inProgress      = metric{"awscni_ipamd_action_inprogress", "gauge", []string{"fn"}, "1 while an effect of the loop runs, by kind: cloud, host, save"}
	ipamdErrorCount = metric{"awscni_ipamd_error_count", "counter", []string{"fn"}, "failed effects of the loop by kind (cloud, host, save, annotate)"}
	awsUtilsErrors  = metric{"awscni_aws_utils_error_count", "counter", []string{"fn", "error"}, "failed metadata calls by what was asked for and error code; none: no answer"}
	startupSeconds  = metric{"awscni_ipamd_startup_duration_seconds", "histogram", []string{"failure_reason", "success", "with_api_server"}, "seconds from the daemon's start to the moment when pods can start; with_api_server: there is a way to the API server (no start waits for it)"}
	nodeInitSeconds = metric{"awscni_ipamd_node_initialization_duration_seconds", "histogram", []string{"success"}, "the part of it in which EC2 and the kernel are read and put right"}
	connmarkBackend = metric{"awscni_connmark_backend", "gauge", []string{"backend"}, "what keeps the marks of connections: nftables, always"}
	connmarkCount   = metric{"awscni_connmark_reconcile_total", "counter", []string{"result"}, "readings and repairs of the kernel, of which the marks are a part, by result (success, error)"}
	buildInfo       = metric{"awscni_build_info", "gauge", []string{"goversion", "version"}, "1, by the daemon's version and that of Go"}
	noAvailableIPs  = metric{"awscni_no_available_ip_addresses", "counter", nil, "pods that got no address in time"}
	addIPReqCount   = metric{"awscni_add_ip_req_count", "counter", nil, "requests for an address"}
	delIPReqCount   = metric{"awscni_del_ip_req_count", "counter", []string{"reason"}, "addresses given back, by reason: del, pending (left while the daemon was down), abort (the plugin went away), gc, evidence (no word from the runtime, but the pod's route and veth were gone)"}
	reconcileCount  = metric{"awscni_reconcile_count", "counter", []string{"fn", "result"}, "effects of the loop by kind (cloud, host, save, annotate) and result (ok, error)"}
	ec2ReqCount     = metric{"awscni_ec2api_req_count", "counter", []string{"fn"}, "EC2 calls by action"}
	ec2ErrorCount   = metric{"awscni_ec2api_error_count", "counter", []string{"fn"}, "failed EC2 calls by action"}
	apiLatency      = metric{"awscni_aws_api_latency_ms", "summary", []string{"api", "error", "status"}, "milliseconds of EC2 and metadata calls; status is HTTP's, 0 without an answer"}
	apiErrorCount   = metric{"awscni_aws_api_error_count", "counter", []string{"api", "error"}, "failed EC2 and metadata calls by error code; none: no answer"}
	coolingIPs      = metric{"vpccni_cooling_ip_addresses", "gauge", nil, "released addresses that may not be used again yet"}
	waitingPods     = metric{"vpccni_waiting_pods", "gauge", nil, "pods that wait for an address"}
	addSeconds      = metric{"vpccni_add_seconds", "histogram", nil, "seconds from a request for an address to its answer"}
	kernelRepairs   = metric{"vpccni_kernel_repairs_total", "counter", []string{"kind"}, "objects of ours in the kernel that others removed or changed and that were put right, by kind (address, link, nftables, route, rule, sysctl); alarm when it grows: pods lost packets"}
	annotateOwned   = metric{"vpccni_annotations_owned", "gauge", nil, "pods whose annotations this daemon answers for; while it is not 0, the permission to patch pods is needed"}
	annotatePending = metric{"vpccni_annotations_pending", "gauge", nil, "annotations whose wish the API server has not answered yet"}
	annotateOldest  = metric{"vpccni_annotations_oldest_pending_seconds", "gauge", nil, "seconds since the oldest wish that the API server has not answered yet came up; 0: there is none"}
	annotateOverdue = metric{"vpccni_annotations_overdue", "gauge", nil, "pods that still name the address of a sandbox that ended ten minutes ago or earlier; alarm when it is not 0: other pods may have the addresses"}
	annotatePass    = metric{"vpccni_annotations_pass_left", "gauge", nil, "pods that the pass over the node's pods (at start, after a change of settings) has still to visit"}
	namedElsewhere  = metric{"vpccni_addresses_named_elsewhere_total", "counter", nil, "addresses given to a pod although another pod's annotation or status still named them: there was no other"}
	annotateTrouble = metric{"vpccni_annotation_trouble", "gauge", []string{"kind"}, "1 while the self-check finds something wrong, by kind: permission (this service account may not do what annotations need), keys (admission would refuse the configured keys), policy (nothing keeps this service account to its keys)"}
	stateTrouble    = metric{"vpccni_state_trouble", "gauge", []string{"kind"}, "1 while something is wrong with the state folder, by kind: load (this life began without the last one's state), save (no pod can start), lock (there is no lock file)"}

	annotationRequests = metric{"vpccni_annotation_requests_total", "counter", []string{"operation", "reason"}, "requests about annotations: set, clear, remove, read; reason is ok or why not"}
	annotationSeconds  = metric{"vpccni_annotation_request_seconds", "histogram", []string{"operation"}, "seconds of requests about annotations"}
	annotationVisible  = metric{"vpccni_annotation_visible_seconds", "histogram", nil, "seconds from the choice of an address to the moment when the daemon's own watch of pods shows the annotation with it, as it shows it to every reader"}
	annotationWritten  = metric{"vpccni_annotation_written_seconds", "histogram", nil, "seconds from the choice of an address to the answer that the annotation holds it"}
)

func metrics() []metric {
	return []metric{
		eniAllocated, eniMax, ipMax, totalIPs, assignedIPs, assignedPerENI, noAvailableIPs, addIPReqCount, delIPReqCount, kernelRepairs,
		assignedPerCIDR, inProgress, ipamdErrorCount, awsUtilsErrors, startupSeconds, nodeInitSeconds, connmarkBackend, connmarkCount, buildInfo,
		reconcileCount, ec2ReqCount, ec2ErrorCount, apiLatency, apiErrorCount, coolingIPs, waitingPods, addSeconds,
		annotateOwned, annotatePending, annotateOldest, annotateOverdue, annotatePass, namedElsewhere, annotateTrouble, stateTrouble,
		annotationRequests, annotationSeconds, annotationWritten, annotationVisible,
	}
}

// Table renders the README's table of metrics in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, m := range metrics() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), m.help)
	}
	return b.String()
}

// gauges reads the figures when it is asked.
type gauges struct{ figures func() (Figures, bool) }

func (m metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.name, m.help, m.labels, nil) }

// Describe implements prometheus.Collector.
func (g gauges) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics() {
		if m.kind == "gauge" && m.name != connmarkBackend.name && m.name != buildInfo.name || m.name == namedElsewhere.name {
			out <- m.desc()
		}
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(out chan<- prometheus.Metric) {
	f, ok := g.figures()
	if !ok {
		return
	}
	show := func(m metric, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(m.desc(), prometheus.GaugeValue, float64(value), labels...)
	}
	show(eniAllocated, f.ENIs)
	show(eniMax, f.MaxENIs)
	show(ipMax, f.MaxIPs)
	show(totalIPs, f.IPs)
	show(assignedIPs, f.AssignedIPs)
	for eni, n := range f.AssignedPerENI {
		show(assignedPerENI, n, eni)
	}
	for cidr, n := range f.AssignedPerCIDR {
		show(assignedPerCIDR, n, cidr)
	}
	for kind, runs := range f.InProgress {
		show(inProgress, number(runs), kind)
	}
	show(coolingIPs, f.Cooling)
	show(waitingPods, f.Waiting)
	show(annotateOwned, f.AnnotationsOwned)
	show(annotatePending, f.AnnotationsPending)
	show(annotateOverdue, f.AnnotationsOverdue)
	show(annotatePass, f.PassLeft)
	out <- prometheus.MustNewConstMetric(annotateOldest.desc(), prometheus.GaugeValue, f.OldestAnnotation.Seconds())
	out <- prometheus.MustNewConstMetric(namedElsewhere.desc(), prometheus.CounterValue, float64(f.NamedElsewhere))
	trouble := func(m metric, kinds map[string]bool) {
		for kind, wrong := range kinds {
			value := 0
			if wrong {
				value = 1
			}
			show(m, value, kind)
		}
	}
	trouble(annotateTrouble, f.AnnotationTrouble)
	trouble(stateTrouble, f.StateTrouble)
}

func number(on bool) int {
	if on {
		return 1
	}
	return 0
}
