// Package reconcile is the loop that joins the pure pool to the world: trigger, observe, plan, execute, fold in, apply to
// the kernel, wake the ADDs that wait.
//
// It owns the order of things: that state is on disk before anyone acts on it, that one goroutine alone touches the pool,
// that nothing slow (EC2, the kernel, the disk) stands in the way of an ADD that could be answered. It never decides about
// addresses (the pool does) and never talks to EC2, the kernel, the disk or Kubernetes itself: it declares Cloud, Host,
// Store and Annotator, and reaches them through one Seam, at which a simulation can order, delay, fail or crash.
// Start with Loop in loop.go; commands.go has what the daemon calls, work.go what runs beside the loop.
package reconcile
