package config

// group orders the settings in the README.
type group string

const (
	groupPool     group = "Warm pool"
	groupLinks    group = "Pod links"
	groupRouting  group = "Routing and translation"
	groupAnnotate group = "Pod-IP annotation"
	groupNode     group = "Node and cluster"
	groupFiles    group = "Files and sockets"
	groupServed   group = "Logs, metrics, introspection"
)

// setting is one environment variable.
type setting struct {
	name     string
	group    group
	standard string // the default, as text; "" means unset
	unit     string
	doc      string // one or two sentences for the README
	value    value
}

// settings is the list. Keys reads a list of annotation keys.
func (s *Settings) settings(keys KeyParser) []setting {
	return append(append(s.networkSettings(), s.annotationSettings(keys)...), s.nodeSettings()...)
}

func (s *Settings) networkSettings() []setting {
	return []setting{
		{"WARM_ENI_TARGET", groupPool, "1", "ENIs", "Whole ENIs kept free beyond those in use. Ignored where `WARM_IP_TARGET` or `MINIMUM_IP_TARGET` is above 0.",
			integer{&s.WarmENITarget, 0, maxENISettable}},
		{"WARM_IP_TARGET", groupPool, "0", "addresses", "Free addresses kept ready. 0: not used.",
			integer{&s.WarmIPTarget, 0, maxTarget}},
		{"MINIMUM_IP_TARGET", groupPool, "0", "addresses", "Addresses kept on the node in all, in use or free. 0: not used. Alone it gives a pool that grows only for waiting pods.",
			integer{&s.MinimumIPTarget, 0, maxTarget}},
		{"MAX_ENI", groupPool, "-1", "ENIs", "Most ENIs on the node, the primary one included. 0 or less: the instance type's limit.",
			integer{&s.MaxENI, -1, maxENISettable}},
		{"IP_COOLDOWN_PERIOD", groupPool, "30", "s", "Time before a released address goes to another pod. It survives a restart of the daemon.",
			seconds{&s.Cooldown, maxCooldown}},
		{"AWS_VPC_ENI_MTU", groupLinks, "9001", "bytes", "MTU of the ENIs' links.",
			integer{&s.ENIMTU, minMTU, maxMTU}},
		{"POD_MTU", groupLinks, "", "bytes", "MTU of the pods' links. Unset: that of the ENIs.",
			integer{&s.PodMTU, minMTU, maxMTU}},
		{"AWS_VPC_K8S_CNI_VETHPREFIX", groupLinks, "eni", "", "First letters of the host's end of each pod's veth pair. Calico expects `eni`. Do not change it while pods run.",
			vethPrefix{&s.VethPrefix}},
		{"AWS_VPC_K8S_CNI_EXTERNALSNAT", groupRouting, "false", "", "true: something outside the node translates what leaves the VPC, the node does not.",
			boolean{&s.ExternalSNAT}},
		{"AWS_VPC_CNI_NODE_PORT_SUPPORT", groupRouting, "true", "", "Replies to connections from outside leave by the ENI that the connection came in by.",
			boolean{&s.NodePort}},
	}
}

func (s *Settings) annotationSettings(keys KeyParser) []setting {
	return []setting{
		{"ANNOTATE_POD_IP", groupAnnotate, "false", "", "Write each pod's address to its annotations the moment it is chosen, so that a policy engine need not wait for the kubelet. Turning it off removes what was written.",
			boolean{&s.AnnotatePodIP}},
		{"ANNOTATE_POD_IP_KEYS", groupAnnotate, "vpc.amazonaws.com/pod-ips", "", "Annotation keys to write, separated by commas, or presets: `aws` (the default), `calico` (`cni.projectcalico.org/podIP` and `podIPs`), `neutral` (`vpc-cni.github.io/pod-ips`). The value is one address; with `:all` behind a key (`example.org/ips:all`) all of the pod's, joined by commas. Keys that are taken off the list are removed from running pods.",
			keyList{&s.AnnotateKeys, &s.AnnotateAll, keys}},
		{"ANNOTATE_POD_IP_WAIT", groupAnnotate, "0s", "", "Longest time that a pod's start waits for the API server to confirm the annotation. 0: it does not wait. A pod never fails because of it.",
			duration{&s.AnnotateWait, maxWaitADD}},
	}
}

func (s *Settings) nodeSettings() []setting {
	return []setting{
		{"MY_NODE_NAME", groupNode, "", "", "This node's name in Kubernetes (downward API `spec.nodeName`). Needed for annotations.",
			text{&s.NodeName}},
		{"CLUSTER_NAME", groupNode, "", "", "Value of the tag `cluster.k8s.amazonaws.com/name` on new ENIs. Unset: no such tag.",
			text{&s.ClusterName}},
		{"ADDITIONAL_ENI_TAGS", groupNode, "{}", "", "Further tags for new ENIs, as a JSON object. Keys with `k8s.amazonaws.com` are left out.",
			tagMap{&s.ENITags}},
		{"AWS_EC2_ENDPOINT", groupNode, "", "", "URL of the EC2 API. Unset: what the AWS SDK finds (`AWS_ENDPOINT_URL_EC2`, else the region's).",
			httpURL{&s.EC2Endpoint}},
		{"CLUSTER_ENDPOINT", groupNode, "", "", "URL of the API server. Unset: what `KUBECONFIG` or the pod's service account says.",
			httpURL{&s.ClusterEndpoint}},
		{"KUBECONFIG", groupNode, "", "", "File that says how to reach the API server. Unset: the pod's service account.",
			absolutePath{&s.Kubeconfig}},
		{"VPC_CNI_SOCKET", groupFiles, "/var/run/aws-node/cni.sock", "", "Unix socket on which the plugin reaches the daemon.",
			socketPath{&s.Socket}},
		{"VPC_CNI_STATE_DIR", groupFiles, "/var/run/aws-node", "", "Folder of the allocations. It must outlive the daemon, not the node's boot.",
			absolutePath{&s.StateDir}},
		{"AWS_VPC_K8S_CNI_BACKING_STORE", groupFiles, "/var/run/aws-node/ipam.json", "", "The Amazon VPC CNI's file of allocations. It is read where `VPC_CNI_STATE_DIR` has none yet, so that running pods keep their addresses, and never written.",
			absolutePath{&s.IncumbentState}},
		{"VPC_CNI_HEALTH_SOCKET", groupFiles, "", "", "Unix socket for gRPC health checks (`grpc.health.v1`), `ipamd status` and `ipamd explain`. Unset: `ipamd.sock` beside `VPC_CNI_SOCKET`, by default the path that the Amazon VPC CNI's probes ask.",
			socketPath{&s.HealthSocket}},
		{"HOST_CNI_CONFDIR_PATH", groupFiles, "/host/etc/cni/net.d", "", "Folder in which `10-aws.conflist` is written once the daemon can serve.",
			absolutePath{&s.ConfDir}},
		{"HOST_CNI_BIN_PATH", groupFiles, "/host/opt/cni/bin", "", "Folder of the runtime's plugins; a warning is logged while `aws-cni` is missing there.",
			absolutePath{&s.BinDir}},
		{"HOST_CNI_CACHE_PATH", groupFiles, "/host/var/lib/cni", "", "Folder of the results that the runtime keeps (`/var/lib/cni` on the host). A lost or unreadable state file is made again from them; without them running pods keep their addresses, but CHECK and GC do not know them.",
			absolutePath{&s.CacheDir}},
		{"AWS_VPC_K8S_CNI_LOGLEVEL", groupServed, "DEBUG", "", "What the daemon logs (to standard error).",
			logLevel{&s.LogLevel}},
		{"VPC_CNI_LOG_FORMAT", groupServed, "json", "", "Form of the daemon's log lines.",
			oneOf{&s.LogFormat, []string{"json", "text"}}},
		{"AWS_VPC_K8S_PLUGIN_LOG_FILE", groupServed, "/var/log/aws-routed-eni/plugin.log", "", "File on the host to which the plugin logs what failed. Not `stdout` or `stderr`: they carry the result and the runtime's own text.",
			absolutePath{&s.PluginLogFile}},
		{"AWS_VPC_K8S_PLUGIN_LOG_LEVEL", groupServed, "DEBUG", "", "What the plugin logs.",
			oneOf{&s.PluginLogLevel, []string{"DEBUG", "INFO", "WARN", "ERROR", "FATAL"}}},
		{"INTROSPECTION_BIND_ADDRESS", groupServed, "127.0.0.1:61679", "", "Where `/v1/enis`, `/v1/status` and `/v1/ipamd-env-settings` are served.",
			listenAddress{&s.IntrospectionAddress}},
		{"DISABLE_INTROSPECTION", groupServed, "false", "", "Do not serve introspection.",
			boolean{&s.DisableIntrospection}},
		{"VPC_CNI_METRICS_BIND_ADDRESS", groupServed, ":61678", "", "Where `/metrics` is served.",
			listenAddress{&s.MetricsAddress}},
		{"DISABLE_METRICS", groupServed, "false", "", "Do not serve metrics.",
			boolean{&s.DisableMetrics}},
	}
}
