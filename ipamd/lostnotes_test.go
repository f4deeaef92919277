package ipamd_test

import (
	"os"
	"syscall"
	"testing"
)

// B13, B14. Whose annotations the lost state held: with the runtime's results the pods' owners are known again; without them a
// DEL says whose the value is. Either way no dead pod keeps it, and no live one loses it.
func TestAnnotationsOfALostState(t *testing.T) {
	for name, results := range map[string]bool{"with the runtime's results": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAnnotated(t, results)
			a.start()
			kept, gone, web := a.running("kept"), a.running("gone"), a.running("web")
			for _, p := range []*pod{kept, gone, web} {
				a.reads(p.conf.Args[2][1], p.addr.String())
			}
			_ = a.end(syscall.SIGKILL)
			a.check(os.WriteFile(a.statePath(), []byte(`{"ver`), 0o600))
			a.start()

			a.within(soon, "the end of an annotation", func() { a.del(gone); a.reads("gone", "") })
			old := a.newer(web, "web-older")
			a.del(old) // a late one, of an older sandbox that nobody knows
			later := a.running("later")
			a.reads("later", later.addr.String()) // all that came before is answered
			for _, p := range []*pod{kept, web} {
				a.reads(p.conf.Args[2][1], p.addr.String())
				a.reaches(p, ec2Addr+":80")
			}
			a.del(later)
			a.reads("later", "")
		})
	}
}
