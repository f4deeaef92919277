package introspect

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Figures are what the gauges show, read when Prometheus asks.
type Figures struct {
	ENIs, MaxENIs, MaxIPs int
	IPs, AssignedIPs      int             // secondary addresses on the ENIs; those of them that pods hold
	AssignedPerENI        map[string]int  // by ENI id
	AssignedPerCIDR       map[string]int  // by what EC2 gave: an address, as a prefix
	InProgress            map[string]bool // by kind of effect
	Cooling, Waiting      int             // addresses that may not be used again yet; pods that wait for an address
	AnnotationsOwned      int
	AnnotationsPending    int
	AnnotationsOverdue    int             // clears that are not done after ten minutes
	OldestAnnotation      time.Duration   // age of the oldest of the pending
	PassLeft              int             // pods that the present pass has still to visit
	NamedElsewhere        int             // addresses given out that another pod's annotation or status still named
	AnnotationTrouble     map[string]bool // by kind: "permission", "keys", "policy"
	StateTrouble          map[string]bool // by kind: "load", "save", "lock"
}

// Metrics is every metric of the daemon. Methods may be called from any goroutine.
type Metrics struct {
	registry *prometheus.Registry

	addRequests, noAddress                                     prometheus.Counter
	delRequests, ec2Requests, ec2Errors, apiErrors, reconciles *prometheus.CounterVec
	annotationRequests, kernelRepairs                          *prometheus.CounterVec
	ipamdErrors, awsUtilsErrors, connmarks                     *prometheus.CounterVec
	startup, nodeInit                                          *prometheus.HistogramVec
	connmarkBackend, build                                     *prometheus.GaugeVec
	apiLatency                                                 *prometheus.SummaryVec
	annotationLatency                                          *prometheus.HistogramVec
	addSeconds, annotationWritten, annotationVisible           prometheus.Histogram
}

// NewMetrics registers everything with the registry. Figures is asked at each scrape; ok is false when it has no answer
// (the gauges are then left out rather than shown as 0).
func NewMetrics(registry *prometheus.Registry, figures func() (f Figures, ok bool)) *Metrics {
	m := &Metrics{
		registry:           registry,
		addRequests:        prometheus.NewCounter(counterOpts(addIPReqCount)),
		noAddress:          prometheus.NewCounter(counterOpts(noAvailableIPs)),
		delRequests:        prometheus.NewCounterVec(counterOpts(delIPReqCount), delIPReqCount.labels),
		ec2Requests:        prometheus.NewCounterVec(counterOpts(ec2ReqCount), ec2ReqCount.labels),
		ec2Errors:          prometheus.NewCounterVec(counterOpts(ec2ErrorCount), ec2ErrorCount.labels),
		apiErrors:          prometheus.NewCounterVec(counterOpts(apiErrorCount), apiErrorCount.labels),
		reconciles:         prometheus.NewCounterVec(counterOpts(reconcileCount), reconcileCount.labels),
		kernelRepairs:      prometheus.NewCounterVec(counterOpts(kernelRepairs), kernelRepairs.labels),
		annotationRequests: prometheus.NewCounterVec(counterOpts(annotationRequests), annotationRequests.labels),
		apiLatency:         prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: apiLatency.name, Help: apiLatency.help}, apiLatency.labels),
		annotationLatency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: annotationSeconds.name, Help: annotationSeconds.help, Buckets: requestBuckets()}, annotationSeconds.labels),
		addSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: addSeconds.name, Help: addSeconds.help, Buckets: requestBuckets()}),
		annotationWritten: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: annotationWritten.name, Help: annotationWritten.help, Buckets: requestBuckets()}),
		annotationVisible: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: annotationVisible.name, Help: annotationVisible.help, Buckets: requestBuckets()}),
	}
	m.likeIncumbent()
	registry.MustRegister(m.ipamdErrors, m.awsUtilsErrors, m.connmarks, m.startup, m.nodeInit, m.connmarkBackend, m.build)
	registry.MustRegister(m.addRequests, m.noAddress, m.delRequests, m.ec2Requests, m.ec2Errors, m.apiErrors, m.reconciles,
		m.annotationRequests, m.kernelRepairs, m.apiLatency, m.annotationLatency, m.addSeconds, m.annotationWritten, m.annotationVisible, gauges{figures})
	return m
}

// likeIncumbent makes what there is because dashboards of the incumbent ask for it. What may never happen is there from the
// start, as 0.
func (m *Metrics) likeIncumbent() {
	m.ipamdErrors = prometheus.NewCounterVec(counterOpts(ipamdErrorCount), ipamdErrorCount.labels)
	m.awsUtilsErrors = prometheus.NewCounterVec(counterOpts(awsUtilsErrors), awsUtilsErrors.labels)
	m.connmarks = prometheus.NewCounterVec(counterOpts(connmarkCount), connmarkCount.labels)
	for _, result := range []string{"success", "error"} {
		m.connmarks.WithLabelValues(result)
	}
	for _, kind := range []string{"cloud", "host", "save", "annotate"} {
		m.ipamdErrors.WithLabelValues(kind)
	}
	for _, reason := range []string{"del", "pending", "abort", "gc", "evidence"} {
		m.delRequests.WithLabelValues(reason)
	}
	histogram := func(of metric) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: of.name, Help: of.help, Buckets: prometheus.DefBuckets}, of.labels)
	}
	m.startup, m.nodeInit = histogram(startupSeconds), histogram(nodeInitSeconds)
	gauge := func(of metric) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: of.name, Help: of.help}, of.labels)
	}
	m.connmarkBackend, m.build = gauge(connmarkBackend), gauge(buildInfo)
	m.connmarkBackend.WithLabelValues("nftables").Set(1)
}

// requestBuckets reach from 1 ms (an answer from memory) to 65 s (the longest wait of an ADD is 60 s).
func requestBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 17) }

func counterOpts(m metric) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: m.name, Help: m.help}
}

// Handler serves the metrics at /metrics.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// Added counts a request for an address and how long it took. NoAddress: none was free in time.
func (m *Metrics) Added(took time.Duration, noAddress bool) {
	m.addRequests.Inc()
	m.addSeconds.Observe(took.Seconds())
	if noAddress {
		m.noAddress.Inc()
	}
}

// Deleted counts an address that was given back, by what led to it: "del", "pending", "abort", "gc", "evidence".
func (m *Metrics) Deleted(reason string) { m.delRequests.WithLabelValues(reason).Inc() }

// Reconciled counts an effect of the loop by kind ("cloud", "host", "save") and result ("ok", "error").
func (m *Metrics) Reconciled(kind, result string) {
	m.reconciles.WithLabelValues(kind, result).Inc()
	connmark := "success"
	if result != "ok" {
		connmark = "error"
		m.ipamdErrors.WithLabelValues(kind).Inc()
	}
	if kind == "host" {
		m.connmarks.WithLabelValues(connmark).Inc()
	}
}

// Built says which version this is.
func (m *Metrics) Built(version string) { m.build.WithLabelValues(runtime.Version(), version).Set(1) }

// Start is how long it took until pods could start: in all, and the part of it for which EC2 and the kernel were read.
type Start struct {
	All, Node time.Duration
	APIServer bool // there is a way to the API server
}

// Started observes a start.
func (m *Metrics) Started(s Start) {
	m.startup.WithLabelValues("", "true", strconv.FormatBool(s.APIServer)).Observe(s.All.Seconds())
	m.nodeInit.WithLabelValues("true").Observe(s.Node.Seconds())
}

// Repairable names the kinds that Repaired will speak of, so that each is there, as 0, before its first repair: an alarm on
// growth would miss a counter that begins with 1.
func (m *Metrics) Repairable(kinds ...string) {
	for _, kind := range kinds {
		m.kernelRepairs.WithLabelValues(kind)
	}
}

// Repaired counts an object in the kernel that others had removed or changed, by kind, and that was put right.
func (m *Metrics) Repaired(kind string) { m.kernelRepairs.WithLabelValues(kind).Inc() }

// Call is one call of EC2 or the metadata service.
type Call struct {
	Service, Action string // "ec2" or "imds"; EC2's action or the metadata's leaf
	Took            time.Duration
	Status          int    // HTTP's; 0 where there was no answer
	Code            string // EC2's error code; "" on success or where there was no answer
	Failed          bool
}

// Called counts a call.
func (m *Metrics) Called(c Call) {
	failed := "false"
	if c.Failed {
		failed = "true"
		if c.Code == "" {
			c.Code = "none"
		}
		m.apiErrors.WithLabelValues(c.Action, c.Code).Inc()
	}
	m.apiLatency.WithLabelValues(c.Action, failed, strconv.Itoa(c.Status)).Observe(c.Took.Seconds() * 1000)
	if c.Service != "ec2" {
		if c.Failed {
			m.awsUtilsErrors.WithLabelValues(c.Action, c.Code).Inc()
		}
		return
	}
	m.ec2Requests.WithLabelValues(c.Action).Inc()
	if c.Failed {
		m.ec2Errors.WithLabelValues(c.Action).Inc()
	}
}

// Request counts a request about annotations: "set", "clear", "remove" or "read", and "ok" or a refusal's word.
func (m *Metrics) Request(operation, reason string, took time.Duration) {
	m.annotationRequests.WithLabelValues(operation, reason).Inc()
	m.annotationLatency.WithLabelValues(operation).Observe(took.Seconds())
}

// Written observes the time from the choice of an address to the API server's answer that the annotation holds it.
func (m *Metrics) Written(sinceWish time.Duration) { m.annotationWritten.Observe(sinceWish.Seconds()) }

// Visible observes the time from the choice of an address to the moment when a watch showed the annotation with it.
func (m *Metrics) Visible(sinceWish time.Duration) { m.annotationVisible.Observe(sinceWish.Seconds()) }
