// Package mutants holds the test of the simulation's test: bugs that other projects had in the field are put into the pool and
// the loop, one at a time, and the seeds of ipamd/reconcile must catch each.
//
// It has no code of its own. testdata has a patch for each bug; its first line names the case and says what is wrong.
package mutants
