package eksnode

import (
	"encoding/json"
	"fmt"
)

// conflistName sorts before other configurations: the runtime takes the first.
const conflistName = "10-aws.conflist"

// conflist is the network configuration that the agent's container leaves on the node of an IPv4 cluster: the plugin, the
// plugin for egress of the other family (there, and off), and portmap.
func conflist(settings map[string]string) ([]byte, error) {
	level := settings["AWS_VPC_K8S_PLUGIN_LOG_LEVEL"]
	const file = logDir + "/plugin.log"
	mtu := settings["AWS_VPC_ENI_MTU"]
	text, err := json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0", "name": "aws-cni", "disableCheck": true,
		"plugins": []map[string]any{
			{
				"name": "aws-cni", "type": "aws-cni", "vethPrefix": settings["AWS_VPC_K8S_CNI_VETHPREFIX"], "mtu": mtu,
				"podSGEnforcingMode": "strict", "pluginLogFile": file, "pluginLogLevel": level,
				"capabilities": map[string]bool{"io.kubernetes.cri.pod-annotations": true},
			},
			{
				"name": "egress-cni", "type": "egress-cni", "mtu": mtu, "enabled": "false",
				"randomizeSNAT": settings["AWS_VPC_K8S_CNI_RANDOMIZESNAT"], "nodeIP": "",
				"ipam": map[string]any{
					"type": "host-local", "ranges": [][]map[string]string{{{"subnet": "fd00::ac:00/118"}}},
					"routes": []map[string]string{{"dst": "::/0"}}, "dataDir": "/run/cni/v4pd/egress-v6-ipam",
				},
				"pluginLogFile": logDir + "/egress-v6-plugin.log", "pluginLogLevel": level,
			},
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode network configuration: %w", err)
	}
	return text, nil
}
