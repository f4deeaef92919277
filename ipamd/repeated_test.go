package ipamd_test

import (
	"testing"
	"time"
)

// A runtime that repeats an ADD gets the same answer at once: the API server's word about the annotation came with the first
// one, and no other will.
func TestRepeatedADDDoesNotWaitForAnAnswerThatHasCome(t *testing.T) {
	t.Parallel()
	const wait = 9 * time.Second
	a := newAnnotated(t, true, "ANNOTATE_POD_IP_WAIT="+wait.String())
	a.start()
	p := a.running("web")
	a.reads("web", p.addr.String())
	addr, began := p.addr, time.Now()
	a.check(a.tryAdd(p))
	if took := time.Since(began); took >= wait || p.addr != addr {
		t.Errorf("the second ADD gave %s (the first %s) after %s", p.addr, addr, took)
	}
}
