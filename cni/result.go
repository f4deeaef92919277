package cni

import (
	"net/netip"
	"os"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpc-cni/vpc-cni/ipamd/api"
)

// printResult prints what an ADD gives, in the form of the version that the runtime asked for.
func printResult(result *current.Result, version string) error {
	if _, err := os.Stdout.Write(appendResult(nil, result, version)); err != nil {
		return types.NewError(types.ErrIOFailure, "result cannot be printed", err.Error())
	}
	return nil
}

// appendResult writes what resultOf fills of a result. types.PrintResult writes the same, but learns all its types by
// reflection first, at each pod's start.
func appendResult(text []byte, result *current.Result, version string) []byte {
	text = api.AppendString(append(text, `{"cniVersion":`...), version)
	text = append(text, `,"interfaces":[`...)
	for i, link := range result.Interfaces {
		text = api.AppendString(append(separated(text, i), `{"name":`...), link.Name)
		text = api.AppendString(append(text, `,"mac":`...), link.Mac)
		if link.Sandbox != "" {
			text = api.AppendString(append(text, `,"sandbox":`...), link.Sandbox)
		}
		text = append(text, '}')
	}
	text = append(text, `],"ips":[`...)
	for i, ip := range result.IPs {
		text = append(separated(text, i), '{')
		if version == "0.4.0" { // it names the family
			text = append(text, `"version":"`+family(ip)+`",`...)
		}
		text = strconv.AppendInt(append(text, `"interface":`...), int64(*ip.Interface), 10)
		text = api.AppendString(append(text, `,"address":`...), ip.Address.String())
		text = append(api.AppendString(append(text, `,"gateway":`...), ip.Gateway.String()), '}')
	}
	text = append(text, `],"routes":[`...)
	for i, route := range result.Routes {
		text = api.AppendString(append(separated(text, i), `{"dst":`...), route.Dst.String())
		text = append(api.AppendString(append(text, `,"gw":`...), route.GW.String()), '}')
	}
	text = append(text, ']')
	if version == "0.4.0" { // it always says something of DNS
		text = append(text, `,"dns":{}`...)
	}
	return append(text, '}')
}

func separated(text []byte, i int) []byte {
	if i > 0 {
		return append(text, ',')
	}
	return text
}

func family(ip *current.IPConfig) string {
	if addr, _ := netip.AddrFromSlice(ip.Address.IP); addr.Unmap().Is4() {
		return "4"
	}
	return "6"
}
