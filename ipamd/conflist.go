package ipamd

import (
	"context"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/install"
)

// keepConflist writes the network configuration once the daemon can serve, and again where somebody changed it: the node
// is not ready for pods without it. It stays when the daemon ends.
func (d *daemon) keepConflist(ctx context.Context) error {
	for _, condition := range []<-chan struct{}{d.listening, d.loop.Ready()} {
		select {
		case <-ctx.Done():
			return nil
		case <-condition:
		}
	}
	tick := time.NewTicker(d.audit)
	defer tick.Stop()
	for {
		d.writeConflist()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// writeConflist logs what goes wrong and does not give up: running pods work without the file.
func (d *daemon) writeConflist() {
	conflist := install.Conflist{
		Socket: d.settings.Socket, LogFile: d.settings.PluginLogFile, LogLevel: pluginLevel(d.settings.PluginLogLevel),
		PortMap: install.HasPortMap(d.settings.BinDir), Around: install.Around(d.around),
	}
	wrote, err := conflist.Write(d.settings.ConfDir)
	switch {
	case err != nil:
		d.log.Error("network configuration not written: no pod can start on this node", "folder", d.settings.ConfDir, "err", err)
	case wrote:
		d.log.Info("network configuration written", "folder", d.settings.ConfDir, "file", install.FileName)
	}
	if !install.HasPlugin(d.settings.BinDir) {
		d.log.Warn("the plugin's binary is not in the runtime's folder", "folder", d.settings.BinDir, "file", install.PluginName)
	}
}

// pluginLevel is a level as the plugin knows it; the incumbent's FATAL is beyond what it logs.
func pluginLevel(setting string) string {
	if setting == "FATAL" {
		return "error"
	}
	return strings.ToLower(setting)
}
