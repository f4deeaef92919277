// Package annotate writes the pod-IP annotation and takes it away again.
//
// It owns the keys and the forms of their values, and the requests to the API server: their form, their order for each pod,
// their retries and how their answers are judged. It never decides what is wished of a pod (the pool does, and keeps the ownership records on disk), never delays a
// pod's start, and never touches a value that is not its owner's.
//
// Why the annotation: a policy engine that is not the CNI learns a pod's address from the API, and kubelet writes
// status.podIP late (kubernetes#39113). Until then the pod's traffic is dropped.
//
// Start at Writer in writer.go: Submit merges records, workers carry out one run (run.go, set.go, clear.go) for one record
// at a time, fold.go turns what the run found into answers, retries and rest. reply.go is the only place that reads the
// API server's errors; refusal.go explains how long a refused clear is tried again, doubt.go what is done about requests
// that nobody answered. What a watch of the node's pods adds is in glance.go (what need not be asked), news.go (what others
// change, and what is waited for) and pass.go (the visit to every pod after a start); without a watch all goes on at the cost
// of more requests. keys.go reads the list of keys.
package annotate
