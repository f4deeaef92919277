package annotate

import (
	"time"

	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// NextTry tells how many attempts at a record have failed in a row, and how long it is until the next one.
func (w *Writer) NextTry(record pool.Annotation) (failures int, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.known[nameOf(record)]
	if p == nil || p.entries[record.Owner] == nil {
		return 0, 0
	}
	e := p.entries[record.Owner]
	return e.failures, e.due.Sub(w.now())
}

// Wake has the writer look at a record's pod again: a test's clock has moved.
func (w *Writer) Wake(record pool.Annotation) { w.again(nameOf(record)) }
