// Package pingready measures how soon a new pod can be pinged and can ping, under a policy engine that drops its traffic
// until it knows the pod's address, with the pod-IP annotation off and on.
//
// It owns the rounds, the clock readings and the report. It fakes nothing: stages come from what the kubelets and policy
// agents told and from a watch of its own, losses from real echo requests between real namespaces. It never boots or
// stops a cluster. Start with Run in run.go; round.go is one round, recorder.go gathers the stages of a pod, report.go is
// what comes out.
package pingready
