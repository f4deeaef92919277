package config

import "strings"

// foreign is a setting of the Amazon VPC CNI that has no effect here. It is accepted where that does no harm, and refused
// by name where an operator would miss something: a feature that does not exist here must not look as if it were on.
type foreign struct {
	name     string
	harmless []string // values taken without effect, besides the empty one; compared without regard to case. nil: every value
	why      string   // for the README and the error
}

// boolish are the spellings that Go's strconv.ParseBool takes for false and true.
var (
	spelledFalse = []string{"false", "0", "f"}
	spelledTrue  = []string{"true", "1", "t"}
)

// informational settings are not worth a remark: the incumbent's manifests always set them, and nothing hangs on them.
const informational = "informational"

// compatibility is the list. A prefix setting that only matters together with a refused one is harmless.
func compatibility() []foreign {
	return []foreign{
		{"ENABLE_NFTABLES", nil, "deprecated: nftables is always used"},
		{"AWS_VPC_K8S_CNI_CONFIGURE_RPFILTER", nil, "deprecated: the daemon keeps rp_filter right on its own links"},
		{"VPC_CNI_VERSION", nil, informational},
		{"MY_POD_NAME", nil, informational},
		{"WARM_PREFIX_TARGET", nil, "matters only with prefix delegation"},
		{"POD_SECURITY_GROUP_ENFORCING_MODE", nil, "matters only with `ENABLE_POD_ENI`"},
		{"DISABLE_TCP_EARLY_DEMUX", nil, "matters only with `ENABLE_POD_ENI`"},
		{"ENI_CONFIG_LABEL_DEF", nil, "matters only with custom networking"},
		{"ENI_CONFIG_ANNOTATION_DEF", nil, "matters only with custom networking"},
		{"ENABLE_V4_EGRESS", nil, "matters only with IPv6"},
		{"AWS_VPC_K8S_EGRESS_V4_PLUGIN_LOG_FILE", nil, "matters only with the egress plugin"},
		{"AWS_VPC_K8S_EGRESS_V6_PLUGIN_LOG_FILE", nil, "matters only with the egress plugin"},
		{"ENABLE_SUBNET_DISCOVERY", nil, "new ENIs are made in the primary ENI's subnet"},
		{"DISABLE_LEAKED_ENI_CLEANUP", nil, "only ENIs tagged as this instance's own are ever deleted"},
		{"MANAGE_UNTAGGED_ENI", nil, "secondary ENIs without this instance's tag are always left alone"},
		{"AWS_VPC_K8S_CNI_LOG_FILE", []string{"/host/var/log/aws-routed-eni/ipamd.log", "stderr"}, "the daemon logs to standard error"},
		{"AWS_VPC_K8S_CNI_RANDOMIZESNAT", []string{"prng"}, "source ports are always fully random"},
		{"AWS_VPC_K8S_CNI_CONNMARK", []string{"0x80", "128"}, "the mark is fixed"},
		{"ENABLE_IPv4", spelledTrue, "IPv4 is always on"},
		{"NETWORK_POLICY_ENFORCING_MODE", []string{"standard"}, "strict enforcement by the network policy agent is not supported yet"},
		{"ENABLE_IPv6", spelledFalse, "IPv6 is not supported yet"},
		{"ENABLE_V6_EGRESS", spelledFalse, "IPv6 egress is not supported yet"},
		{"DISABLE_POD_V6", spelledFalse, "turning IPv6 off inside pods is not supported yet"},
		{"ENABLE_PREFIX_DELEGATION", spelledFalse, "prefixes that an ENI already has are used, new ones are not asked for yet"},
		{"ENABLE_POD_ENI", spelledFalse, "security groups for pods are not supported yet"},
		{"ENABLE_MULTI_NIC", spelledFalse, "several interfaces per pod are not supported yet"},
		{"ENABLE_BANDWIDTH_PLUGIN", spelledFalse, "chaining the bandwidth plugin is not supported yet"},
		{"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", spelledFalse, "custom networking (ENIConfig) is not supported yet"},
		{"AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS", []string{}, "excluding destinations from translation is not supported yet"},
		{"AWS_EXTERNAL_SERVICE_CIDRS", []string{}, "external service CIDRs are not supported yet"},
		{"DISABLE_NETWORK_RESOURCE_PROVISIONING", spelledFalse, "a node without ENI provisioning is not supported yet"},
		{"ENABLE_IMDS_ONLY_MODE", spelledFalse, "running without the EC2 API is not supported yet"},
		{"AWS_MANAGE_ENIS_NON_SCHEDULABLE", spelledFalse, "managing ENIs of unschedulable nodes is not supported yet"},
	}
}

// takes reports whether the value is accepted (without effect).
func (f foreign) takes(value string) bool {
	if f.harmless == nil || value == "" {
		return true
	}
	for _, harmless := range f.harmless {
		if strings.EqualFold(value, harmless) {
			return true
		}
	}
	return false
}

// accepts says in words what is taken.
func (f foreign) accepts() string {
	if len(f.harmless) == 0 {
		return "only the empty value: " + f.why
	}
	return "only " + strings.Join(f.harmless, ", ") + ": " + f.why
}
