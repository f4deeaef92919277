package pool

import (
	"slices"
	"testing"
)

// A new sandbox takes over the record of the pod's earlier one, of which the annotator has been told that its value is to be
// present. Whatever becomes of the new one, somebody must tell it otherwise.
func TestRecordThatWasTakenOverEndsWithItsHeir(t *testing.T) {
	sent := func(w *world) { w.p.Submissions() }
	lost := func(w *world) { w.p.Resubmit(w.p.Submissions()) }
	add := func(sandbox string) func(w *world) { return func(w *world) { w.assign(sandbox, "u1") } }
	abort := func(sandbox string) func(w *world) { return func(w *world) { w.p.Abort(key(sandbox), w.now) } }
	cases := []struct {
		name  string
		steps []func(w *world)
		want  []string
	}{
		{"the new one is present", []func(*world){add("s2")}, []string{"present s2"}},
		{"it is once the disk takes it", []func(*world){add("s2"), lost}, []string{"present s2"}},
		{"it ended after it was sent", []func(*world){add("s2"), sent, abort("s2")}, []string{"empty s2"}},
		{"it ended before it was sent", []func(*world){add("s2"), abort("s2")}, []string{"empty s1", "empty s2"}},
		{"its save failed", []func(*world){add("s2"), lost, abort("s2")}, []string{"empty s1", "empty s2"}},
		{"and that of its end", []func(*world){add("s2"), lost, abort("s2"), lost}, []string{"empty s1", "empty s2"}},
		{"two of them in a row", []func(*world){add("s2"), lost, abort("s2"), lost, add("s3"), lost, abort("s3")}, []string{"empty s1", "empty s2", "empty s3"}},
		{"the second one is present", []func(*world){add("s2"), lost, abort("s2"), lost, add("s3")}, []string{"present s3"}},
		{"the second one was sent", []func(*world){add("s2"), lost, abort("s2"), lost, add("s3"), sent, abort("s3")}, []string{"empty s3"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, annotated())
			w.eni("eni-1", 1, 1)
			w.sync()
			w.run("s1", "u1")
			w.p.Submissions()
			w.pods = nil
			w.p.Release(key("s1"), w.now)
			w.kernel(false)
			for _, step := range c.steps {
				step(w)
			}
			var got []string
			for _, rec := range w.p.Submissions() {
				got = append(got, string(rec.Wish)+" "+rec.Sandbox)
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("submitted %q, want %q", got, c.want)
			}
			if w.p.Submissions(); len(w.p.heirs) > 0 {
				t.Errorf("still remembered: %v", w.p.heirs)
			}
		})
	}
}
