package cni

import (
	"log/slog"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// failed notes a failure in the log file, if one is configured, and returns it for the runtime.
func (c conf) failed(command string, refused *types.Error) error {
	if log, closeLog := c.journal(); log != nil {
		c.write(func() {
			log.Error("command failed", "command", command, "code", refused.Code, "msg", refused.Msg, "details", refused.Details)
		})
		closeLog()
	}
	return refused
}

// note tells of something that succeeded, but not the usual way.
func (c conf) note(msg, sandbox string, err error) {
	if strings.EqualFold(c.logLevel, "error") {
		return
	}
	if log, closeLog := c.journal(); log != nil {
		c.write(func() { log.Warn(msg, "sandbox", sandbox, "err", err) })
		closeLog()
	}
}

// isOutput tells whether a log file is, by whatever name, where the result goes.
func isOutput(file *os.File) bool {
	info, err := file.Stat()
	if err != nil {
		return true // unknown
	}
	for _, output := range []*os.File{os.Stdout, os.Stderr} {
		if other, err := output.Stat(); err == nil && os.SameFile(info, other) {
			return true
		}
	}
	return false
}

// journal opens the log file. One that cannot be opened, or is the process's own output, is no reason to fail a pod.
func (c conf) journal() (*slog.Logger, func()) {
	if c.logFile == "" {
		return nil, nil
	}
	file, err := os.OpenFile(c.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, nil
	}
	if isOutput(file) {
		_ = file.Close()
		return nil, nil
	}
	return slog.New(slog.NewJSONHandler(file, nil)), func() { _ = file.Close() }
}

func (c conf) write(line func()) {
	_ = c.around.do("journal write", func() error { line(); return nil }) // a logger tells nobody that it failed
}
