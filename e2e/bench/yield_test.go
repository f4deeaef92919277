package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// yield has the API server's side (with the proxies before it) run only where a processor has nothing else to do
// (SCHED_IDLE, sched(7)). Elsewhere it has machines of its own, and what its work costs them is no cost of an ADD; here it
// would take the plugin's processor away. Threads that are started later inherit it.
func yield() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return err
	}
	for _, link := range programs {
		program, err := os.Readlink(link)
		pid, numberErr := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil || numberErr != nil {
			continue // it has ended
		}
		proxy := program == self && pid != os.Getpid()
		if proxy || slices.Contains([]string{"kube-apiserver", "etcd", "controlplane"}, filepath.Base(program)) {
			if err := idlePriority(pid); err != nil {
				return fmt.Errorf("let %s yield: %w", program, err)
			}
		}
	}
	return nil
}

// idlePriority sets the policy of all threads of a process. Those that are made while it lists them are found by the second look.
func idlePriority(pid int) error {
	for range 2 {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
			if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && err != unix.ESRCH { // ESRCH: the thread has ended
				return err
			}
		}
	}
	return nil
}
